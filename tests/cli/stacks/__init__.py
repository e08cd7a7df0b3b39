"""Tests of cli/logs."""
