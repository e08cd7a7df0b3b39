"""A demo on a real Prometheus, for the tests and pictures of grafana/."""
