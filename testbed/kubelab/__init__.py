"""The Go program that is every component of a Kubernetes control plane, and the script that builds it."""
