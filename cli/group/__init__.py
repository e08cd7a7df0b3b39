"""A group as the cluster shows it: its JobSet, its Pods, and why one of them is late."""
