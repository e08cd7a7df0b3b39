"""An embedded Kubernetes: `apiserver` keeps the objects, `cluster` runs them."""
