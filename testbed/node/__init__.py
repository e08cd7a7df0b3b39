"""Whole restarts on real nodes: kubelet, containerd, runc and our images, beside the control plane of tests/cluster."""
