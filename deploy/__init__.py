"""
Manifests: a kustomize base with overlays, the part for each namespace of agents, and the Helm chart made from both.
"""
