"""Tests of cli/inject."""
