"""
The texts of a group with spares: the members in a status, and what an agent adds to its announcement.

    members      = "v1,epoch=" epoch ",size=" size *( "," rank "=" slot ) "," ( "seen" / "skipped" ) "=" version
    announcement = "v1,epoch=" epoch ",ran=" epoch

    epoch   = 1 to 2147483647; of ran, 0 for none
    size    = 1 to 5500: ranks 0 to size - 1
    rank    = one that another slot plays than that of its own number, in their order, at most 500 of them
    slot    = 0 to 5499
    version = a resourceVersion, 0 to 2^64 - 1: announcements up to it were counted, or the epoch is skipped

    v1,epoch=7,size=8,3=9,seen=1284100

The list names its epoch: beside a newer S it says nothing. An announcement says that its agent reads such lists:
others lift as soon as they see S, so they are not counted. `ran` is the last
epoch in which this Pod started a worker; 0 for none.

What does not follow the grammar is read as nothing, and is no error: a group without members waits, and the
controller ends the epoch. This module is pure.
"""

from __future__ import annotations

from inplace.common.bare.typed import Final
from inplace.common.protocol.bounds import INT32_MAX
from inplace.common.protocol.members import EXCHANGES_MAX, SLOTS_MAX, Members
from inplace.common.wire.parts import VERSION, read_parts, whole

MEMBERS_BYTES_MAX: Final = 5_120  # 500 exchanges of 10 characters, and the rest
_VERSION_MAX: Final = 2**64 - 1
_ANNOUNCEMENT_BYTES_MAX: Final = 64
_READERS: Final = {
    "epoch": whole(1, INT32_MAX),
    "size": whole(1, SLOTS_MAX),
    "seen": whole(0, _VERSION_MAX),
    "skipped": whole(0, _VERSION_MAX),
    "ran": whole(0, INT32_MAX),
}
_RANK: Final = whole(0, SLOTS_MAX - 1)


def members_text(members: Members) -> str:
    """Return the status field's value."""
    exchanged = "".join(f",{rank}={slot}" for rank, slot in members.exchanged)
    seen = f"{'skipped' if members.skipped else 'seen'}={members.seen}"
    return f"{VERSION},epoch={members.epoch},size={members.size}{exchanged},{seen}"


def read_members(text: object) -> Members | None:
    """Read the status field's value; None for anything else."""
    if not isinstance(text, str) or len(text) > MEMBERS_BYTES_MAX:
        return None
    names = [part.partition("=")[0] for part in text.split(",")][3:-1]
    if len(names) > EXCHANGES_MAX or None in map(_RANK, names):
        return None
    readers = {**_READERS, **dict.fromkeys(names, _RANK)}
    orders = [("epoch", "size", *names, last) for last in ("seen", "skipped")]
    read = read_parts(text, readers, orders, MEMBERS_BYTES_MAX)
    if read is None:
        return None
    exchanged = tuple((int(name), read[name]) for name in names)
    seen = read["skipped"] if "skipped" in read else read["seen"]
    members = Members(read["epoch"], read["size"], exchanged, seen, skipped="skipped" in read)
    return members if members.is_sound() else None


def announcement_text(epoch: int, ran: int) -> str:
    """Return the annotation with which an agent that reads members announces an epoch."""
    return f"{VERSION},epoch={epoch},ran={ran}"


def read_announcement(text: object, epoch: int | None) -> int | None:
    """Return the last epoch that a Pod ran; None where this text does not belong to the epoch that it announced.

    Args:
        text: of the annotation.
        epoch: of the Pod's other annotation, which every agent writes.
    """
    if not isinstance(text, str):
        return None
    read = read_parts(text, _READERS, (("epoch", "ran"),), _ANNOUNCEMENT_BYTES_MAX)
    return read["ran"] if read is not None and read["epoch"] == epoch else None
