"""HTTP to one API server: the seam, credentials, the way there, TLS, and the transport."""
