"""
The annotation with which an agent tells that its worker died or hangs: which epoch, how, and when.

    text  = "v1,epoch=" epoch [ ",code=" code [ ",vain=" restarts ] / stall ] ",at=" milliseconds
    stall = ",stalled=" seconds [ ",step=" step ]
    epoch = the epoch in which the worker ran, 1 to 2147483647
    code  = exit code, 1 to 255; absent if the container ended without a word (its memory ran out, its guard was killed)
    restarts = so many in a row did not help, 1 to 9, where 9 may be more: this Pod gets clean containers
    seconds = how long the worker was silent, 1 to 9999999: it hangs, and did not die
    step  = its last one, 0 to 999999999999; absent if nobody knows
    milliseconds = since the Unix epoch, by the node's clock; 13 digits

    v1,epoch=3,code=137,at=1790000000123            v1,epoch=3,stalled=11,step=1200,at=1790000000123

Reading is strict: any other spelling makes the whole text invalid. This module is pure, and on the agent's start path.
"""

from __future__ import annotations

from inplace.common.bare.record import record
from inplace.common.bare.typed import Final
from inplace.common.protocol.bounds import CODE_MAX, INT32_MAX, STEP_MAX
from inplace.common.protocol.errors import RemoteProtocolError
from inplace.common.wire.parts import VERSION, read_parts, unix_s, unix_text, whole

TEXT_BYTES_MAX: Final = len("v1,epoch=2147483647,stalled=9999999,step=999999999999,at=1790000000123")
STALLED_S_MAX: Final = 9_999_999  # 115 days; what is longer is cut
IN_VAIN_MAX: Final = 9  # more are told as 9
_ORDERS: Final = (
    ("epoch", "at"),
    ("epoch", "code", "at"),
    ("epoch", "code", "vain", "at"),
    ("epoch", "stalled", "at"),
    ("epoch", "stalled", "step", "at"),
)
_READERS: Final = {
    "epoch": whole(1, INT32_MAX),
    "code": whole(1, CODE_MAX),
    "vain": whole(1, IN_VAIN_MAX),
    "stalled": whole(1, STALLED_S_MAX),
    "step": whole(0, STEP_MAX),
    "at": unix_s,
}


@record
class WorkerFailure:
    """How a worker died, or that it hangs.

    Args:
        epoch: int32 >= 1.
        code: of its main process, 128 + n after signal n; None if nobody saw it.
        at_s: Unix time in seconds, by the node's clock.
        stalled_s: it hangs, and was silent for so many whole seconds, >= 1; None if it died.
        step: the last one of a worker that hangs; None if nobody knows.
        in_vain: so many restarts in a row did not help, and its Pod gets clean containers; else 0.
    """

    epoch: int
    code: int | None
    at_s: float
    stalled_s: int | None = None
    step: int | None = None
    in_vain: int = 0


def failure_text(failure: WorkerFailure) -> str:
    """Return the annotation's value."""
    how = "" if failure.code is None else f",code={failure.code}"
    if failure.code is not None and failure.in_vain:
        how += f",vain={min(failure.in_vain, IN_VAIN_MAX)}"
    if failure.stalled_s is not None:
        how = f",stalled={min(max(failure.stalled_s, 1), STALLED_S_MAX)}"
        how += "" if failure.step is None else f",step={failure.step}"
    return f"{VERSION},epoch={failure.epoch}{how},at={unix_text(failure.at_s)}"


def parse_failure(text: str) -> WorkerFailure:
    """Read the annotation's value.

    Raises:
        RemoteProtocolError: it does not follow the grammar above (its writer is at fault).
    """
    read = read_parts(text, _READERS, _ORDERS, TEXT_BYTES_MAX)
    if read is not None:
        stalled, step, vain = read.get("stalled"), read.get("step"), read.get("vain", 0)
        return WorkerFailure(read["epoch"], read.get("code"), read["at"], stalled, step, vain)
    raise RemoteProtocolError(
        f"worker failure: expected {VERSION},epoch=EPOCH,code=CODE,at=MILLISECONDS, or stalled=SECONDS,step=STEP for "
        f"the code, saw {text[:80]!r}"
    )
