"""HTTP to one API server: the seam, credentials, the way there, TLS, and the agent's own transport."""
