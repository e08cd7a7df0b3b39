"""What an agent says of itself: log, metrics, and the phases of a restart."""
