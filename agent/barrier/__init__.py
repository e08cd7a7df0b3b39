"""The barrier over HTTP."""
