"""Tests of controller/spec."""
