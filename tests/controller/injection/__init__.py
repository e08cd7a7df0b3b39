"""Tests of controller/injection."""
