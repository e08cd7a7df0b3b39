"""
The line by which one rank says what it saved, in the file `.NAME.saved` beside its progress file.

    line   = "v1" SP epoch SP local SP shared *SP LF       e.g. v1 7 4200.4199 4000
    epoch  = of the run that wrote it: 1 to 2147483647
    local  = step *3( "." step ), the newest first, each once; "-" for none
    shared = step; "-" for none
    step   = 0 to 999999999999
    At most 80 bytes in all.

`inplace.saved` writes such lines (inplace/resume.py); NAME is rank-RANK, local-LOCAL_RANK, jax-JAX_PROCESS_ID, or pod.
What does not follow the grammar says that its rank saved nothing, and is no error. This module is pure.
"""

from __future__ import annotations

from inplace.common.bare.record import record
from inplace.common.bare.typed import Final
from inplace.common.protocol.bounds import INT32_MAX, STEP_MAX
from inplace.common.wire.members import read_steps
from inplace.common.wire.parts import VERSION, whole

LINE_BYTES_MAX: Final = 80  # the longest line has 79
NONE: Final = "-"
_EPOCH: Final = whole(1, INT32_MAX)
_STEP: Final = whole(0, STEP_MAX)


@record
class SavedLine:
    """What one rank saved in the run of `epoch`: local steps, the newest first, and the newest shared one."""

    epoch: int
    local: tuple[int, ...] = ()
    shared: int | None = None


def parse_saved(content: bytes) -> SavedLine | None:
    """Return what a file's content says; None for what follows no grammar."""
    if len(content) > LINE_BYTES_MAX or not content.endswith(b"\n"):
        return None
    words = content[:-1].decode("latin-1").rstrip(" ").split(" ")
    if len(words) != 4 or words[0] != VERSION:
        return None
    epoch, local, shared = _EPOCH(words[1]), read_local(words[2]), read_step(words[3])
    if not isinstance(epoch, int) or local is None or not shared:
        return None
    return SavedLine(epoch, local, shared[0])


def read_step(word: str) -> tuple[int | None] | None:
    """Read a step or "-", as a tuple of one; None for anything else."""
    step = _STEP(word)
    return (step,) if isinstance(step, int) else (None,) if word == NONE else None


def read_local(word: str) -> tuple[int, ...] | None:
    """Read local steps or "-"; None for anything else."""
    return () if word == NONE else read_steps(word)


def steps_word(local: tuple[int, ...]) -> str:
    """Write local steps."""
    return ".".join(map(str, local)) or NONE


def step_word(step: int | None) -> str:
    """Write a step, or that there is none."""
    return NONE if step is None else str(step)
