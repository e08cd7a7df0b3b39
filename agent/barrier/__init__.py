"""The barrier over HTTP, and `inplace-agent wait`, which asks it."""
