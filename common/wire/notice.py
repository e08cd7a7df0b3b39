"""
What a Pod tells of its worker while it runs: a rank that is busy or makes no step, or numbers that went wrong.

    text  = "v1,epoch=" epoch ",kind=" kind ",value=" value ",rank=" rank [ ",step=" step ] ",at=" milliseconds
    epoch = of the worker, 1 to 2147483647
    kind  = "busy"    value is for how many seconds from now on no silence is a stall, 1 to 604800
          / "loss"    value is how many steps in a row had a loss that is no finite number, 1 to 9999999
          / "slow"    value is what the rank's own work takes now, in percent of this run's median, 1 to 9999999
          / "steps"   the same of whole steps, waiting for others included: the rank may be a healthy one
          / "stall"   value is for how many seconds the rank has made no step, 1 to 9999999: longer than any before
          / "pause"   value is how long a "stall" of this Pod lasted: it is over
    rank  = the name of its progress file: 1 to 32 letters, digits, ".", "_" and "-"
    step  = its newest one, 0 to 999999999999; of "loss" the first bad one, of "pause" the one before it; absent if
        nobody knows
    milliseconds = since the Unix epoch, by the node's clock; 13 digits

    v1,epoch=3,kind=slow,value=310,rank=rank-17,step=1200,at=1790000000123

The annotation is the Pod's newest notice. `status.notices` lists those of the group's running epochs. Reading is
strict: any other spelling makes the whole text invalid. This module is pure.
"""

from __future__ import annotations

from inplace.common.bare.record import record
from inplace.common.bare.typed import Final
from inplace.common.protocol.bounds import BUSY_S_MAX, INT32_MAX, STEP_MAX
from inplace.common.protocol.errors import RemoteProtocolError
from inplace.common.wire.parts import VERSION, read_parts, unix_s, unix_text, whole

BUSY: Final = "busy"
LOSS: Final = "loss"
SLOW: Final = "slow"
STEPS: Final = "steps"
STALL: Final = "stall"
PAUSE: Final = "pause"
KINDS: Final = (BUSY, LOSS, SLOW, STEPS, STALL, PAUSE)
RESTARTING: Final = (LOSS, SLOW, STEPS, STALL)  # where somebody asks for it
VALUE_MAX: Final = 9_999_999  # what is more is told as this
RANK_CHARACTERS_MAX: Final = 32
LISTED_MAX: Final = 4  # of one kind in one scope, in the status; who would be one more tells nothing
_SAFE: Final = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-")
_TEXT_BYTES_MAX: Final = 128
_ORDERS: Final = (("epoch", "kind", "value", "rank", "at"), ("epoch", "kind", "value", "rank", "step", "at"))
_READERS: Final = {
    "epoch": whole(1, INT32_MAX),
    "kind": lambda text: text if text in KINDS else None,
    "value": whole(1, VALUE_MAX),
    "rank": lambda text: text if _SAFE.issuperset(text) and 1 <= len(text) <= RANK_CHARACTERS_MAX else None,
    "step": whole(0, STEP_MAX),
    "at": unix_s,
}


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
    rank = "".join(one if one in _SAFE else "_" for one in notice.rank[:RANK_CHARACTERS_MAX]) or "_"
    step = "" if notice.step is None or not 0 <= notice.step <= STEP_MAX else f",step={notice.step}"
    told = f"kind={notice.kind},value={value},rank={rank}{step},at={unix_text(notice.at_s)}"
    return f"{VERSION},epoch={notice.epoch},{told}"


def parse_notice(text: str) -> Notice:
    """Read the annotation's value.

    Raises:
        RemoteProtocolError: it does not follow the grammar above (its writer is at fault).
    """
    read = read_parts(text, _READERS, _ORDERS, _TEXT_BYTES_MAX)
    if read is not None and (read["kind"] != BUSY or read["value"] <= BUSY_S_MAX):
        return Notice(read["epoch"], read["kind"], read["value"], read["rank"], read.get("step"), read["at"])
    raise RemoteProtocolError(
        f"notice: expected v1,epoch=EPOCH,kind=KIND,value=VALUE,rank=RANK,step=STEP,at=MILLISECONDS, saw {text[:80]!r}"
    )
