"""What a spec gets wrong although admission let it pass."""
