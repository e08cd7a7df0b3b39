"""Add the agent to Pod templates: the controller does it for its Jobs, and `inplace inject` in a file. Pure."""
