"""Dashboards, rules and pictures of what the programs tell Prometheus; docs/observability.md says what answers what."""
