"""The worker's processes: start, check, save, end and clean up, for a guard."""
