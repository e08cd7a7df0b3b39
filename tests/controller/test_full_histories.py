"""Every memory of the status is full, as long as the CRD allows, and one failure more is to be written."""

from __future__ import annotations

from typing import Any, Final

import pytest

from inplace.common.jobset.bad_nodes import NODES_MAX
from inplace.common.jobset.restart_history import ENTRIES_MAX, FIELD
from inplace.common.jobset.settings import EPOCHS_MAX, NODE_FAILURES_MAX, STEP_NAMES, USES_MAX, WINDOW_S_MAX
from inplace.common.kube.resources import JOBSETS, NODES, KubeObject
from inplace.common.wire import names as wire
from inplace.simulator.cluster.nodes import node
from tests.controller.crew import Crew
from tests.controller.manifests import jobset, replicated_job
from tests.controller.rig import Rig

pytestmark = [pytest.mark.attack, pytest.mark.virtual_time]

LONG: Final = 253  # of a name
BOMB: Final = "\U0001f4a3"  # one character, four bytes
ANNOTATIONS: Final = {
    wire.FAILURES: f"backoff=0,no-progress={EPOCHS_MAX},short=604800",
    wire.NODES: f"failures={NODE_FAILURES_MAX},within={WINDOW_S_MAX},percent=100",
    wire.ESCALATION: f"{','.join(f'{step}={USES_MAX}' for step in STEP_NAMES)},window={WINDOW_S_MAX}",
}


def at(now: str) -> KubeObject:
    """Return the parts of a status that are full, with the longest words that the CRD takes."""
    name = "n" * LONG
    uses = [
        {"escalationStep": step, "startedAt": now, "epoch": 1, "pod": name, "podUid": "u" * 36}
        for step in STEP_NAMES
        for _ in range(USES_MAX)
    ]
    nodes = [
        {
            "node": f"{number:03}{name[3:]}",
            "failedAt": [now] * NODE_FAILURES_MAX,
            "avoidedSince": now,
            "pod": name,
            "jobUid": "u" * 36,
            "why": BOMB * 256,
        }
        for number in range(NODES_MAX)
    ]
    past = {"epoch": 2, "trigger": "worker_exit", "startedAt": now, "pod": name, "node": name, "lastLine": BOMB * 256}
    return {
        wire.ESCALATION_USES: uses,
        wire.NODE_FAILURES: nodes,
        FIELD: [past] * ENTRIES_MAX,
        wire.CRASH_LOOP: {"failedEpochs": EPOCHS_MAX - 2},
    }


async def filled(rig: Rig, **changes: Any) -> Crew:
    """Return a JobSet that runs, and whose histories are full."""
    wanted = jobset(jobs=[replicated_job(pods=2)], restarts_max=1_000, annotations=ANNOTATIONS)
    crew = await rig.started(wanted)
    now = (await crew.jobset())["metadata"]["creationTimestamp"]
    status = at(now) | changes
    await rig.admin.patch(JOBSETS, "default", "train", {"status": status}, subresource="status")
    await rig.settle()
    return crew


async def test_a_jobset_with_no_step_left_fails(rig: Rig) -> None:
    """Four steps with 64 uses each are as many as the list takes; the use that ends the JobSet is written as well."""
    crew = await filled(rig)
    await rig.fail(crew, 0, 5.0)
    await rig.meet(crew, 2)
    status = await crew.status()
    assert status["terminalState"] == "Failed"
    assert status[wire.ESCALATION_USES][-1]["escalationStep"] == "Fail"


async def test_a_pod_leaves_its_node_with_all_uses_taken(rig: Rig) -> None:
    """One use of another kind more: the restart begins, its Pod leaves, and no list outgrows the CRD."""
    crew = await filled(rig)
    spare = [use for use in at("2023-11-14T22:13:20Z")[wire.ESCALATION_USES] if use["escalationStep"] != "InPlace"]
    room = [use | {"escalationStep": "InPlace"} for use in spare[: USES_MAX - 1]]
    uses = {"status": {wire.ESCALATION_USES: [*room, *spare]}}
    await rig.admin.patch(JOBSETS, "default", "train", uses, subresource="status")
    await rig.admin.create(NODES, None, node("n0", pods=8, now="2026-01-01T00:00:00Z"))
    await rig.admin.patch(NODES, None, "n0", {"spec": {"unschedulable": True}})
    await crew.run_on(crew.pod_at(0), "n0")
    failed = await rig.fail(crew, 0, 5.0)
    assert (await crew.epochs())[1] == 1
    assert await rig.is_ending(failed)
    assert len((await crew.status())[wire.ESCALATION_USES]) == 256
