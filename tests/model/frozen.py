"""Freeze a Ledger into a hashable value and thaw it, so that it can be part of an explored state."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

from inplace.common.protocol.ledger import Ledger
from inplace.common.protocol.pod_record import Record
from inplace.common.protocol.pod_view import PodView
from inplace.common.protocol.slot import Shape, Slot
from tests.model.pods import moved_uid

FIELDS = (
    *("shape", "synced", "deprecated", "members", "_records", "_occupants", "_pods_at", "_slots_at", "_shared_at"),
    *("_ghosts", "_succeeded", "_ahead", "_slots_ahead", "_intruders", "_broken", "_census", "_vanished"),
    *("_seen", "_resized"),
)  # of them, members and _seen are part of a state where Pods have versions and tell of steps (tests/model/members.py)
RECORD_FIELDS = ("pod", "epoch", "joined", "expected", "instance_synced", "ran", "fenced")

Frozen = tuple[Any, ...]
Places = tuple[int, ...]
"""The new number of each slot."""


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


def moved(frozen: Frozen, places: Places) -> Frozen:
    """Return the ledger that has seen the same of Pods whose slots have other numbers."""
    synced, deprecated, records, occupants, *counted, succeeded, ahead, at, intruders, broken, census, gone = frozen
    return (
        synced,
        deprecated,
        tuple(sorted((_moved_uid(uid, places), _moved_view(pod, places), *rest) for uid, pod, *rest in records)),
        tuple(sorted((_moved_slot(slot, places), _moved_uids(uids, places)) for slot, uids in occupants)),
        *counted,
        tuple(sorted(((job, places[index]), count) for (job, index), count in succeeded)),
        _moved_uids(ahead, places),
        at,
        _moved_uids(intruders, places),
        _moved_uids(broken, places),
        census,
        gone,
    )


def _moved_uid(uid: str, places: Places) -> str:
    return moved_uid(uid, places[int(uid.partition(".")[0])])


def _moved_uids(uids: tuple[str, ...], places: Places) -> tuple[str, ...]:
    return tuple(sorted(_moved_uid(uid, places) for uid in uids))


def _moved_slot(slot: Slot, places: Places) -> Slot:
    return slot._replace(job_index=places[slot.job_index])


def _moved_view(pod: PodView, places: Places) -> PodView:
    worker = pod.worker
    if worker.instance:
        worker = replace(worker, instance=_moved_uid(worker.instance, places))
    return replace(pod, uid=_moved_uid(pod.uid, places), slot=_moved_slot(pod.slot, places), worker=worker)
