"""
What a Pod tells of its worker while it runs: a busy rank that its peers wait for, or numbers that went wrong.

    text  = "v1,epoch=" epoch ",kind=" kind ",value=" value ",rank=" rank [ ",step=" step ] ",at=" milliseconds
    epoch = of the worker, 1 to 2147483647
    kind  = "busy"    value is for how many seconds from now on no silence is a stall, 1 to 604800
          / "loss"    value is how many steps in a row had a loss that is no finite number, 1 to 9999999
          / "slow"    value is what the rank's own work takes now, in percent of this run's median, 1 to 9999999
          / "steps"   the same of whole steps, waiting for others included: the rank may be a healthy one
    rank  = the name of its progress file: 1 to 32 letters, digits, ".", "_" and "-"
    step  = its newest one, 0 to 999999999999; of "loss" the first bad one; absent if nobody knows
    milliseconds = since the Unix epoch, by the node's clock; 13 digits

    v1,epoch=3,kind=slow,value=310,rank=rank-17,step=1200,at=1790000000123

The annotation is the Pod's newest notice. `status.notices` lists those of the group's running epochs. Reading is
strict: any other spelling makes the whole text invalid. This module is pure.
"""

from __future__ import annotations

import re

from inplace.common.bare.record import record
from inplace.common.bare.typed import Final
from inplace.common.protocol.errors import RemoteProtocolError
from inplace.common.protocol.int32 import INT32_MAX

BUSY: Final = "busy"
LOSS: Final = "loss"
SLOW: Final = "slow"
STEPS: Final = "steps"
KINDS: Final = (BUSY, LOSS, SLOW, STEPS)
VALUE_MAX: Final = 9_999_999  # what is more is told as this
BUSY_S_MAX: Final = 604_800  # as common.wire.progress has it
RANK_CHARACTERS_MAX: Final = 32
STEP_MAX: Final = 999_999_999_999  # as common.wire.progress has it
LISTED_MAX: Final = 4  # of one kind in one scope, in the status; who would be one more tells nothing
_MILLISECONDS_MAX: Final = 9_999_999_999_999  # in the year 2286
_TEXT: Final = re.compile(
    r"v1,epoch=([1-9][0-9]{0,9}),kind=(busy|loss|slow|steps),value=([1-9][0-9]{0,6}),rank=([A-Za-z0-9._-]{1,32})"
    r"(?:,step=(0|[1-9][0-9]{0,11}))?,at=([0-9]{13})",
    re.ASCII,
)
_UNSAFE: Final = re.compile(r"[^A-Za-z0-9._-]")


@record
class Notice:
    """One notice of one rank.

    Args:
        epoch: of its worker, int32 >= 1.
        kind: one of KINDS.
        value: see above, 1 to VALUE_MAX.
        rank: the name of its progress file.
        step: see above; None if nobody knows.
        at_s: Unix time in seconds, by the node's clock.
    """

    epoch: int
    kind: str
    value: int
    rank: str
    step: int | None
    at_s: float


def notice_text(notice: Notice) -> str:
    """Return the annotation's value; what does not fit its ranges is cut."""
    most = BUSY_S_MAX if notice.kind == BUSY else VALUE_MAX
    value = min(max(notice.value, 1), most)
    rank = _UNSAFE.sub("_", notice.rank[:RANK_CHARACTERS_MAX]) or "_"
    step = "" if notice.step is None or not 0 <= notice.step <= STEP_MAX else f",step={notice.step}"
    milliseconds = min(max(round(notice.at_s * 1000), 0), _MILLISECONDS_MAX)
    return f"v1,epoch={notice.epoch},kind={notice.kind},value={value},rank={rank}{step},at={milliseconds:013d}"


def parse_notice(text: str) -> Notice:
    """Read the annotation's value.

    Raises:
        RemoteProtocolError: it does not follow the grammar above (its writer is at fault).
    """
    found = _TEXT.fullmatch(text)
    if found is not None:
        epoch, kind, value, rank, step, milliseconds = found.groups()
        notice = Notice(
            int(epoch), kind, int(value), rank, None if step is None else int(step), int(milliseconds) / 1000
        )
        if notice.epoch <= INT32_MAX and (kind != BUSY or notice.value <= BUSY_S_MAX):
            return notice
    raise RemoteProtocolError(
        f"notice: expected v1,epoch=EPOCH,kind=KIND,value=VALUE,rank=RANK,step=STEP,at=MILLISECONDS, saw {text[:80]!r}"
    )
