"""The worker's processes: start, check, save, end and clean up, for a supervisor and for a guard."""
