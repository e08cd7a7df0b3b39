"""Tests of controller/plan."""
