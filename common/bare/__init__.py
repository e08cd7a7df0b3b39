"""What the agent's start path has instead of dataclasses, typing and what Python 3.10 lacks of asyncio."""
