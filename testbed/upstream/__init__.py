"""Upstream's own JobSet controller and in-place agent, built from their Go module, for tests and comparisons."""
