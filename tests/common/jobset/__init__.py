"""Tests of common/jobset."""
