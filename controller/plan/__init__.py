"""What to do about one JobSet: `steps.plan` is pure, and each feature is one module."""
