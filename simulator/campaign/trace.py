"""
The events of a run, line by line, and one hash of all of them.

Two runs with equal hashes are the same run: the hash covers every API write, every delivery to a client, every
worker's start and end and every fault, with its time.
"""

from __future__ import annotations

import asyncio
from hashlib import blake2b

HASH_BYTES = 8
LINES_MAX = 200_000  # lines kept for printing; the hash has no such limit


class Trace:
    """The lines of one run.

    Args:
        keeps: keep the lines, to print them; the hash alone costs no memory.
    """

    def __init__(self, *, keeps: bool = False) -> None:
        self.lines: list[str] = []
        self.count = 0
        self.last_s = 0.0
        self._keeps = keeps
        self._hash = blake2b(digest_size=HASH_BYTES)

    def add(self, kind: str, text: str) -> None:
        """Add one event to the hash, and to the kept lines."""
        self.last_s = asyncio.get_running_loop().time()
        line = f"{self.last_s:11.6f} {kind:8} {text}"
        self.count += 1
        self._hash.update(line.encode())
        if self._keeps and len(self.lines) < LINES_MAX:
            self.lines.append(line)

    @property
    def hash(self) -> str:
        """Return the hash of all lines so far."""
        return self._hash.copy().hexdigest()
