"""What a terminal shows: safe texts, consoles, times."""
