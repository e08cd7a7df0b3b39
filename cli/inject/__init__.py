"""`inplace inject`: put the agent into a manifest."""
