"""
The tail of a run: the last bytes that one run of a worker wrote to its standard output and error.

The worker's parent keeps it in a file on a folder of the Pod's that outlives its containers, as a ring behind a head of
fixed size. So it is there however parent and worker end. The Pod's agent reads it, keeps it in its own folder, and
tells it in its log: lines of event TAIL, each with a piece of the text. docs/adr/0094

Pure, and on the guard's way to a worker's start.
"""

from __future__ import annotations

from inplace.common.bare.record import record
from inplace.common.bare.typed import Final
from inplace.common.protocol.bounds import REQUEST_MAX, decimal
from inplace.common.wire.parts import VERSION

TAIL_BYTES: Final = 65_536  # of one run that are kept, the newest
HEAD_BYTES: Final = 64
FILE_BYTES_MAX: Final = HEAD_BYTES + TAIL_BYTES
FILES_MAX: Final = 8  # parents in one Pod that keep tails; each has a file
TAIL: Final = "worker_tail"  # the event


@record
class RunTail:
    """What is known of one run's output.

    Args:
        epoch: of the run.
        began_ms: when the run began, Unix time.
        total: bytes that it wrote.
        text: the last of them.
    """

    epoch: int
    began_ms: int
    total: int
    text: bytes


def tail_file(number: int) -> str:
    """Return the name of a parent's file, in the folder of the ranks' progress."""
    return f".tail-{number}"


def head_of(epoch: int, began_ms: int, total: int) -> bytes:
    """Return what stands before the ring."""
    return f"{VERSION} {epoch} {began_ms} {total}".ljust(HEAD_BYTES - 1).encode() + b"\n"


def parse_tail(content: bytes) -> RunTail | None:
    """Read a file, of which a worker may have made anything; return None if it says nothing."""
    words = content[:HEAD_BYTES].decode("ascii", "replace").split()
    numbers = [decimal(word, REQUEST_MAX) for word in words[1:]]
    if len(words) != 4 or words[0] != VERSION or None in numbers:
        return None
    epoch, began_ms, total = (number or 0 for number in numbers)
    ring = content[HEAD_BYTES:FILE_BYTES_MAX]
    if total <= TAIL_BYTES:
        return RunTail(epoch, began_ms, total, ring[:total])
    at = total % TAIL_BYTES
    return RunTail(epoch, began_ms, total, ring[at:] + ring[:at])
