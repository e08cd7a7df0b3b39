"""What happens before the loop: the settings, the start of each mode, and the exit codes."""
