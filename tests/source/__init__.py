"""Tests of the source as a whole."""
