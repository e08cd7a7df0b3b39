"""`inplace explain` says how many spares are ready, and why the others are not."""

from __future__ import annotations

import pytest

from inplace.cli.group.pod_facts import PodFact
from inplace.cli.group.state import group_state
from inplace.cli.status.explain import explanation_data
from inplace.cli.status.explanation import Explanation, Facts, explain
from inplace.common.jobset.spares import spares_name
from inplace.common.kube.resources import JOBSETS, KubeObject
from inplace.common.wire import names as wire
from tests.cli.facts import jobset, pod, text_of
from tests.cli.scenes import explained, training

FULL = {"type": "PodScheduled", "status": "False", "message": "0/3 nodes are available: 3 Insufficient cpu."}
NO_IMAGE = {"waiting": {"reason": "ImagePullBackOff", "message": "gone"}}
UNMADE = f"kubectl describe job {spares_name('train')} -n default"


def of(*spares: PodFact, wanted: str = "2", synced: int = 1, **spec: object) -> Explanation:
    """Explain a group of two Pods with these spares."""
    raw = jobset(2, status=wire.status_of_epochs(synced, 0), **spec)
    raw["metadata"]["annotations"] = {wire.SPARES: wanted}
    pods = [pod(index, synced) for index in range(2)]
    return explain(Facts(group_state(raw, pods), pods, spares=spares), now_s=0.0)


def spare(name: str, phase: str = "Running", status: KubeObject | None = None, **more: object) -> PodFact:
    """Return a spare."""
    return pod(name=name, status={"phase": phase, "containerStatuses": []} | (status or {}), **more)  # type: ignore[arg-type]


def line(explanation: Explanation) -> list[str]:
    """Return the line about spares."""
    return [one for one in text_of(explanation).splitlines() if "spare" in one]


@pytest.mark.parametrize(
    ("spares", "said"),
    [
        ((spare("a"), spare("b")), "2 of 2 spares are ready"),
        (
            (spare("a"), spare("b", "Pending", {"conditions": [FULL]})),
            "1 of 2 spares are ready; 1 waits: 0/3 nodes are available: 3 Insufficient cpu.",
        ),
        (
            (spare("a", "Pending", {"containerStatuses": [{"name": "hold", "image": "x", "state": NO_IMAGE}]}),) * 2,
            "0 of 2 spares are ready; 2 wait: image cannot be pulled: container hold, image x: ImagePullBackOff: gone",
        ),
        (
            (spare("a", "Pending"), spare("b", "Pending", spec={"nodeName": None})),
            "0 of 2 spares are ready; 1 waits: its images are pulled; 1 waits: it has no node yet",
        ),
        ((), f"0 of 2 spares are ready; 2 wait: its Job has not made it yet, or may not: {UNMADE}"),
        (
            (spare("a"), spare("b", "Failed"), spare("c", deletionTimestamp="2026-01-01T00:00:00Z")),
            f"1 of 2 spares are ready; 1 waits: its Job has not made it yet, or may not: {UNMADE}",
        ),
    ],
)
def test_the_line(spares: tuple[PodFact, ...], said: str) -> None:
    """How many are ready, and each reason with its number."""
    assert line(of(*spares)) == [said]


def test_before_the_first_epoch() -> None:
    """Spares do not compete with the first Pods."""
    said = "0 of 1 spare is ready; 1 waits: they are made when the group runs for the first time"
    assert line(of(wanted="1", synced=0)) == [said]


def test_where_none_is_wanted_there_is_no_line() -> None:
    """Nobody asked, it is suspended, or the number cannot be read."""
    for found in (of(wanted="0"), of(wanted="9"), of(suspend=True)):
        assert line(found) == []
        assert explanation_data(found)["spares"] is None


@pytest.mark.virtual_time
async def test_of_a_group_that_trains() -> None:
    """One request more, and only where spares are asked for; they are in the document too."""
    async with training() as cluster:
        before = await explained(cluster)
        assert (before.spares, line(before)) == (None, [])
        body = {"metadata": {"annotations": {wire.SPARES: "2"}}}
        await cluster.client().patch(JOBSETS, "default", "train", body)
        found = await explained(cluster)
        assert found.facts.state.expected == 4, "a spare is no Pod of the group"
        data = explanation_data(found)["spares"]
        assert data is not None
        assert (data["wanted"], data["ready"] + sum(data["waiting"].values())) == (2, 2)
