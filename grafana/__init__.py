"""Dashboards as plain JSON, made by a small builder: `python -m grafana.build` writes them, a test compares."""
