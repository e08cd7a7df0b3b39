"""The slots of a JobSet's Pods, as the judge counts them."""

from __future__ import annotations

from collections.abc import Iterator

from inplace.common.kube.resources import KubeObject
from inplace.common.wire import names as wire

Slot = tuple[str, str]  # Job's name and completion index


def slot_of(pod: KubeObject) -> Slot:
    """Return the slot that a Pod stands in."""
    meta = pod["metadata"]
    owner = next((o["name"] for o in meta.get("ownerReferences") or () if o.get("controller")), "")
    return owner, str((meta.get("annotations") or {}).get(wire.JOB_COMPLETION_INDEX, ""))


def slots_of(jobset: KubeObject) -> Iterator[Slot]:
    """Yield the slots that a JobSet's spec asks for."""
    for replicated in jobset["spec"]["replicatedJobs"]:
        for job in range(int(replicated.get("replicas", 1))):
            name = f"{jobset['metadata']['name']}-{replicated['name']}-{job}"
            for index in range(int(replicated["template"]["spec"]["parallelism"])):
                yield name, str(index)
