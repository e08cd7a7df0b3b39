"""Manifests: a kustomize base with overlays, the part for a namespace of agents, and the Helm chart made from both."""
