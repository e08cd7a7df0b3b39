"""The slots of a JobSet's Pods, as the judge counts them."""

from __future__ import annotations

from collections.abc import Iterator

from inplace.common.kube.resources import KubeObject
from inplace.common.protocol.members import Members
from inplace.common.wire import names as wire

Slot = tuple[str, str]  # Job's name and completion index


def place_of(members: Members, slot: Slot) -> int | None:
    """Return the rank of a slot among all Pods of the members; None of a spare's, and of a Pod in no slot.

    Counted from the list of all units, and not as agents count it.
    """
    units, unit = members.slots(), unit_of(members, slot)
    if unit not in units:
        return None
    return units.index(unit) * members.pods + int(slot[1]) if members.pods else units.index(unit)


def unit_of(members: Members, slot: Slot) -> int:
    """Return the unit of a slot: its number, or its Job's; -1 of a Pod in no slot."""
    number = slot[0].rpartition("-")[2] if members.pods else slot[1]
    return int(number) if number.isdigit() and slot[1].isdigit() else -1


def slot_of(pod: KubeObject) -> Slot:
    """Return the slot that a Pod stands in."""
    meta = pod["metadata"]
    owner = next((o["name"] for o in meta.get("ownerReferences") or () if o.get("controller")), "")
    return owner, str((meta.get("annotations") or {}).get(wire.JOB_COMPLETION_INDEX, ""))


def jobset_of(pod: KubeObject) -> str:
    """Return the uid of the JobSet that a Pod belongs to."""
    meta = pod["metadata"]
    return str((meta.get("annotations") or {}).get(wire.JOBSET_UID) or (meta.get("labels") or {}).get(wire.JOBSET_UID))


def slots_of(jobset: KubeObject) -> Iterator[Slot]:
    """Yield the slots that a JobSet's spec asks for."""
    for replicated in jobset["spec"]["replicatedJobs"]:
        for job in range(int(replicated.get("replicas", 1))):
            name = f"{jobset['metadata']['name']}-{replicated['name']}-{job}"
            for index in range(int(replicated["template"]["spec"]["parallelism"])):
                yield name, str(index)
