"""What runs containers on a node of the tests, built from Go modules: containerd, its shim, runc, two CNI plugins."""
