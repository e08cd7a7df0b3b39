"""Manifests: a kustomize base with overlays, what each namespace of agents needs, and the Helm chart made from both."""
