"""What a `Ledger` remembers of one Pod, and what the Pods of one slot mean together."""

from __future__ import annotations

from dataclasses import dataclass

from inplace.common.protocol.pod_view import PodLife, PodView


@dataclass(slots=True)
class Record:
    """What is remembered of one Pod."""

    pod: PodView
    epoch: int | None = None  # the highest valid one; an annotation that goes back is not believed
    joined: int = 0  # the highest valid one announced while it was live; our agents start no worker in a later one
    expected: bool = True
    instance_synced: int = 0  # S when this run of the worker container was first seen
    ran: bool = False  # this run was seen running
    fenced: bool = False  # it leaves, and no worker of it is left, nor will be


_OCCUPYING = (PodLife.LIVE, PodLife.LEAVING)


def epoch_of_slot(slot: dict[str, Record]) -> int | None:
    """Return the epoch at which a slot counts."""
    only = only_live(slot)
    return only.epoch if only is not None else None


def only_live(slot: dict[str, Record]) -> Record | None:
    """Return the occupant of a slot that counts: the only one, while that is live."""
    if len(slot) != 1:
        return None
    (only,) = slot.values()
    return only if only.pod.life is PodLife.LIVE else None


def may_run(record: Record) -> bool:
    """Say whether containers of a Pod may run."""
    return record.pod.life in _OCCUPYING and not record.fenced
