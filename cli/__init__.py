"""`inplace`, also installed as `kubectl-inplace`: what a person types."""
