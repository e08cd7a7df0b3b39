"""The embedded API server, where it can fail without a client."""
