"""Real clients of JobSets (Kueue, Kubeflow Trainer) against the controller: one scenario a test."""
