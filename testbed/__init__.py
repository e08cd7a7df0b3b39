"""A real control plane and real nodes, for tests, benchmarks and pictures."""
