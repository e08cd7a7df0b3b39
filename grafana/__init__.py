"""Dashboards, rules and pictures of the programs' metrics; docs/observability.md explains them."""
