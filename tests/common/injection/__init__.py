"""Tests of common/injection."""
