"""In-place restart for distributed training on Kubernetes; in the source tree, the folders here are links."""
