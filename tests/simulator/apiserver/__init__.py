"""Tests of the embedded API server without clients."""
