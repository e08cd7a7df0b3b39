"""
Who runs in an epoch and from which step, in a status; and what an agent adds to its announcement.

    members      = "v1,epoch=" epoch ( ",all=" size / ",size=" size [ ",pods=" pods ] *( "," rank "=" unit ) )
                   ( ",seen=" / ",skipped=" ) version [ ( ",local=" / ",shared=" ) step ]
    announcement = "v1,epoch=" epoch ",ran=" epoch [ ",local=" step *3( "." step ) ] [ ",shared=" step ]
                   [ ",unfit=" step ]

    epoch   = 1 to 2147483647; of ran, 0 for none
    all     = of a group without spares: each of so many slots is a member
    size    = 1 to 5500, of a group with spares: ranks 0 to size - 1
    pods    = 1 to 5500, of each Job: its units are Jobs, by their index; without it they are Pods
    rank    = one that another unit plays than that of its own number, in their order, at most 500 of them
    unit    = 0 to 5499
    version = a resourceVersion, 0 to 2^64 - 1: announcements up to it were counted, or the epoch is skipped
    step    = 0 to 999999999999; the local ones of an announcement from the newest to the oldest, each once

    v1,epoch=7,size=8,3=9,seen=1284100,local=4200
    v1,epoch=7,size=8,pods=4,3=9,seen=1284100
    v1,epoch=7,ran=6,local=4200.4199,shared=4000

The list names its epoch: beside a newer S it says nothing. It says from which step its members go on (docs/adr/0108).
A group without spares has one only where its Pods told of steps. An announcement says that its agent reads such lists:
in a group with spares others lift as soon as they see S, so they are not counted. `ran` is the last epoch in which this
Pod started a worker.

What does not follow the grammar is read as nothing, and is no error: a group with spares waits, and the controller ends
the epoch; in a group without spares who told of steps restarts the group. This module is pure.
"""

from __future__ import annotations

from functools import lru_cache

from inplace.common.bare.record import record
from inplace.common.bare.typed import Final
from inplace.common.protocol.bounds import INT32_MAX, STEP_MAX
from inplace.common.protocol.members import EXCHANGES_MAX, SLOTS_MAX, Members
from inplace.common.protocol.resume import LOCAL_STEPS_MAX, NOTHING, Resume, Saved
from inplace.common.wire.parts import VERSION, read_parts, whole

MEMBERS_BYTES_MAX: Final = 5_120  # 500 exchanges of 10 characters, and the rest
_VERSION_MAX: Final = 2**64 - 1
_ANNOUNCEMENT_BYTES_MAX: Final = 160
_STEP: Final = whole(0, STEP_MAX)
_OF_MEMBERS: Final = {
    "epoch": whole(1, INT32_MAX),
    "all": whole(1, INT32_MAX),
    "size": whole(1, SLOTS_MAX),
    "pods": whole(1, SLOTS_MAX),
    "seen": whole(0, _VERSION_MAX),
    "skipped": whole(0, _VERSION_MAX),
    "local": _STEP,
    "shared": _STEP,
}
_RANK: Final = whole(0, SLOTS_MAX - 1)


@record
class Announced:
    """What an agent adds to its announcement: the last epoch that this Pod ran, 0 for none, and what it could load."""

    ran: int
    saved: Saved = NOTHING


def members_text(members: Members) -> str:
    """Return the status field's value."""
    size = f"{'all' if members.everyone else 'size'}={members.size}" + (f",pods={members.pods}" if members.pods else "")
    exchanged = "".join(f",{rank}={slot}" for rank, slot in members.exchanged)
    seen = f"{'skipped' if members.skipped else 'seen'}={members.seen}"
    resume = members.resume
    step = "" if resume is None else f",{resume.kind}={resume.step}"
    return f"{VERSION},epoch={members.epoch},{size}{exchanged},{seen}{step}"


def read_members(text: object) -> Members | None:
    """Read the status field's value; None for anything else."""
    if not isinstance(text, str) or len(text) > MEMBERS_BYTES_MAX:
        return None
    names = [part.partition("=")[0] for part in text.split(",")]
    ranks = [name for name in names if name.isdigit()]
    if len(ranks) > EXCHANGES_MAX or None in map(_RANK, ranks):
        return None
    last = names[-2:] if names[-1] in ("local", "shared") else names[-1:]
    if last[0] not in ("seen", "skipped"):
        return None
    orders = (("epoch", "size", *ranks, *last), ("epoch", "size", "pods", *ranks, *last), ("epoch", "all", *last))
    read = read_parts(text, {**_OF_MEMBERS, **dict.fromkeys(ranks, _RANK)}, orders, MEMBERS_BYTES_MAX)
    if read is None:
        return None
    kind = last[1] if len(last) > 1 else ""
    members = Members(
        read["epoch"],
        read["all"] if "all" in read else read["size"],
        tuple((int(name), read[name]) for name in ranks),
        read[last[0]],
        skipped=last[0] == "skipped",
        resume=Resume(read[kind], local=kind == "local") if kind else None,
        everyone="all" in read,
        pods=read.get("pods", 0),
    )
    return members if members.everyone or members.is_sound() else None


def announcement_text(epoch: int, announced: Announced) -> str:
    """Return the annotation that goes with an announcement."""
    saved = announced.saved
    local = f",local={'.'.join(map(str, saved.local))}" if saved.local else ""
    shared = "" if saved.shared is None else f",shared={saved.shared}"
    unfit = "" if saved.unfit is None else f",unfit={saved.unfit}"
    return f"{VERSION},epoch={epoch},ran={announced.ran}{local}{shared}{unfit}"


def read_announcement(text: object, epoch: int | None) -> Announced | None:
    """Return what a Pod told with its announcement; None where this text does not belong to that.

    Args:
        text: of the annotation.
        epoch: of the Pod's other annotation, which every agent writes.
    """
    if not isinstance(text, str) or len(text) > _ANNOUNCEMENT_BYTES_MAX:
        return None
    told_epoch, announced = _parsed(text)
    return announced if told_epoch == epoch else None


@lru_cache(maxsize=64)  # all Pods of a group announce nearly the same text
def _parsed(text: str) -> tuple[int | None, Announced | None]:
    """Read what an agent adds to its announcement; return the epoch that it names, too."""
    names = tuple(part.partition("=")[0] for part in text.split(",")[1:])
    order = ("epoch", "ran", *(name for name in ("local", "shared", "unfit") if name in names))
    read = read_parts(text, _OF_ANNOUNCEMENT, (order,), _ANNOUNCEMENT_BYTES_MAX)
    if read is None:
        return None, None
    return read["epoch"], Announced(read["ran"], Saved(read.get("local", ()), read.get("shared"), read.get("unfit")))


def read_steps(text: str) -> tuple[int, ...] | None:
    """Read the local steps; None where they are too many, or not from the newest to the oldest."""
    steps = [_STEP(part) for part in text.split(".")]
    found = tuple(step for step in steps if isinstance(step, int))
    is_falling = len(found) == len(steps) and found == tuple(sorted(set(found), reverse=True))
    return found if is_falling and len(found) <= LOCAL_STEPS_MAX else None


_OF_ANNOUNCEMENT: Final = {
    "epoch": whole(1, INT32_MAX),
    "ran": whole(0, INT32_MAX),
    "local": read_steps,
    "shared": _STEP,
    "unfit": _STEP,
}
