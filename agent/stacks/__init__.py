"""Write where the ranks of a worker are to its log: a program of its own, beside the worker."""
