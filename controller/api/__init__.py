"""Talk to the API server: transport, credentials, pace, leadership, Events."""
