"""A training program and the JobSet that runs it: `python -m inplace.examples.train`, train.yaml."""
