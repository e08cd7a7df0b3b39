"""Tell processes apart by their age."""

from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path


def in_order_of_start(pids: Iterable[int]) -> list[int]:
    """Return processes, the oldest first, without those that are gone; a process id does not tell: the numbers wrap."""
    born: list[tuple[int, int]] = []
    for pid in pids:
        with suppress(OSError):
            after_name = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            born.append((int(after_name[19]), pid))  # field 22 of proc_pid_stat(5), in clock ticks
    return [pid for _, pid in sorted(born)]
