"""What the agent's start path has instead of dataclasses and typing."""
