"""Tests against a real Kubernetes control plane; they need Go once, so `make test` leaves this folder out."""
