"""A training program and the JobSet that runs it: `python -m examples.train`, train.yaml."""
