"""Tests of cli/manifests."""
