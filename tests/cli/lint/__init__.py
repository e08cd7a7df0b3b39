"""Tests of cli/lint."""
