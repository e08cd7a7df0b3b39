"""Manifests as strangers bring them, and what each of our tools is expected to say about them (`expected.toml`)."""
