"""The command line `inplace`, also installed as `kubectl-inplace`."""
