"""Tests of cli/terminal."""
