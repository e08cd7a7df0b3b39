"""Serve pages to kubelet and Prometheus."""
