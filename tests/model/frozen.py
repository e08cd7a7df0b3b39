"""Freeze a Ledger into a hashable value and thaw it, so that it can be part of an explored state."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from inplace.common.protocol.ledger import Ledger
from inplace.common.protocol.pod_record import Record
from inplace.common.protocol.slot import Shape

FIELDS = (
    *("shape", "synced", "deprecated", "members", "_records", "_occupants", "_pods_at", "_slots_at", "_shared_at"),
    *("_ghosts", "_succeeded", "_ahead", "_slots_ahead", "_intruders", "_broken", "_census", "_vanished"),
    *("_seen", "_resized"),
)  # of them, members and _seen are part of a state where Pods have versions and tell of steps (tests/model/members.py)
RECORD_FIELDS = ("pod", "epoch", "joined", "expected", "instance_synced", "ran", "fenced")

Frozen = tuple[Any, ...]


def check_fields() -> None:
    """Refuse a Ledger with a field that this module does not know: the state would lack it."""
    ledger = tuple(field.name for field in fields(Ledger))
    record = tuple(field.name for field in fields(Record))
    if ledger != FIELDS or record != RECORD_FIELDS:
        raise AssertionError(f"expected fields {FIELDS} and {RECORD_FIELDS}, saw {ledger} and {record}: extend freeze")


def freeze(ledger: Ledger) -> Frozen:
    """Return all data of a ledger in one canonical order. The shape never changes in the model."""
    return (
        ledger.synced,
        ledger.deprecated,
        tuple(
            sorted((uid, *(getattr(record, name) for name in RECORD_FIELDS)) for uid, record in ledger._records.items())
        ),
        tuple(sorted((slot, tuple(sorted(pods))) for slot, pods in ledger._occupants.items())),
        tuple(sorted(ledger._pods_at.items())),
        tuple(sorted(ledger._slots_at.items())),
        tuple(sorted(ledger._shared_at.items())),
        ledger._ghosts,
        tuple(sorted(ledger._succeeded.items())),
        tuple(sorted(ledger._ahead)),
        tuple(sorted(ledger._slots_ahead.items())),
        tuple(sorted(ledger._intruders)),
        tuple(sorted(ledger._broken)),
        ledger._census,
        ledger._vanished,
    )


def thaw(shape: Shape, frozen: Frozen) -> Ledger:
    """Return a ledger that behaves like the frozen one."""
    (
        synced,
        deprecated,
        records,
        occupants,
        pods_at,
        slots_at,
        shared_at,
        ghosts,
        succeeded,
        ahead,
        slots_ahead,
        intruders,
        broken,
        census,
        vanished,
    ) = frozen
    ledger = Ledger(shape, synced, deprecated)
    ledger._records.update({uid: Record(*rest) for uid, *rest in records})
    for slot, uids in occupants:
        ledger._occupants[slot] = {uid: ledger._records[uid] for uid in uids}
    ledger._pods_at.update(dict(pods_at))
    ledger._slots_at.update(dict(slots_at))
    ledger._shared_at.update(dict(shared_at))
    ledger._succeeded.update(dict(succeeded))
    ledger._ghosts, ledger._census, ledger._vanished = ghosts, census, vanished
    ledger._ahead.update(ahead)
    ledger._slots_ahead.update(dict(slots_ahead))
    ledger._intruders.update(intruders)
    ledger._broken.update(broken)
    return ledger
