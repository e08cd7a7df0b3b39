"""Commands that read a running group: status, explain, timeline, restart."""
