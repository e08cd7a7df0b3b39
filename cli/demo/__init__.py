"""`inplace demo`: a group that restarts on an embedded Kubernetes."""
