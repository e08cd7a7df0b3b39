"""Checkpoint libraries with inplace: a training script for each, and a harness that kills, drains and suspends them."""
