"""A Pod in the cache is small, whatever its creator wrote into it."""

from __future__ import annotations

import gc
import tracemalloc
from typing import Any

import msgspec
import pytest

from inplace.common.jobset.kinds import GATES_MAX, POD_CODEC, VALUE_CHARACTERS_MAX
from inplace.common.wire import names as wire
from inplace.controller.tracking.pods import NOWHERE, read_pod

BYTES_MAX = 4_000


def heavy_pod() -> dict[str, Any]:
    """Return a Pod of a megabyte in every field that its creator may fill and that we read."""
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "job"}
    owners = [owner | {"uid": f"uid-{number:05}"} for number in range(5_000)]
    names = (wire.EPOCH, wire.ATTEMPT, wire.PHASES, wire.JOB_COMPLETION_INDEX)
    return {
        "metadata": {
            "name": "pod",
            "namespace": "default",
            "uid": "uid",
            "resourceVersion": "1",
            "ownerReferences": [*owners, owner | {"uid": "job-uid", "controller": True}],
            "annotations": dict.fromkeys(names, "7" * 65000),
        },
        "spec": {"schedulingGates": [{"name": f"example.com/{number:05}"} for number in range(10_000)]},
    }


@pytest.mark.parametrize("way", ["list", "watch", "answer"])
def test_a_heavy_pod_is_kept_small(way: str) -> None:
    """A Pod of a megabyte is kept in some 2 kB: its controller, the beginnings of annotations, no gates."""
    pod = heavy_pod()
    data = msgspec.json.encode(pod)
    ways = {
        "list": lambda: POD_CODEC.decode(data),
        "watch": lambda: POD_CODEC.decode_change(b'{"type":"ADDED","object":' + data + b"}").object,
        "answer": lambda: POD_CODEC.convert(pod),
    }
    tracemalloc.start()
    before, _ = tracemalloc.get_traced_memory()
    kept = ways[way]()
    gc.collect()
    after, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert after - before < BYTES_MAX
    assert kept.job_uid == "job-uid"
    assert "expected" in read_pod(kept, NOWHERE, current=True).problem


def test_what_our_own_pods_say_is_kept_whole() -> None:
    """Values up to the bound are kept whole, and so are the gates of a Pod that has our gate."""
    gates = [wire.PLACEMENT_GATE, *(f"example.com/{number}" for number in range(1, GATES_MAX))]
    phases = "v1," + "x" * (VALUE_CHARACTERS_MAX - 3)
    kept = POD_CODEC.convert(
        {
            "metadata": {"name": "p", "uid": "u", "resourceVersion": "1", "annotations": {wire.PHASES: phases}},
            "spec": {"schedulingGates": [{"name": name} for name in gates]},
        }
    )
    assert kept.metadata.annotations is not None
    assert kept.metadata.annotations.phases == phases
    assert [gate.name for gate in kept.spec.scheduling_gates or ()] == gates
