"""Tests of cli/status."""
