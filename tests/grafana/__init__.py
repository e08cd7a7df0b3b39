"""The dashboards say what the code says."""
