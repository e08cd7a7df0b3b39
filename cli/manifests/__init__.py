"""Manifests: read with their lines, found parts, and findings about them."""
