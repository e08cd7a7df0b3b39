"""Tests of controller/tracking."""
