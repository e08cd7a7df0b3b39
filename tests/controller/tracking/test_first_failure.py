"""The failure that came first is named, in whatever order the Pods of a group tell of theirs."""

from __future__ import annotations

from itertools import permutations

import pytest

from inplace.common.jobset.causes import Failure
from inplace.common.jobset.last_restart import came_before
from inplace.common.jobset.restart_history import FIELD
from inplace.common.kube.resources import PODS
from inplace.common.wire import names as wire
from inplace.common.wire.last_line import last_line_text
from inplace.common.wire.worker_failure import WorkerFailure, failure_text
from tests.controller.crew import Crew
from tests.controller.manifests import jobset, replicated_job
from tests.controller.rig import Rig

CULPRIT, VICTIM = "ValueError: bad sample 4711", "RuntimeError: Connection closed by peer [10.0.0.7]:41234"


async def tell(rig: Rig, crew: Crew, pod: str, ago_s: float, line: str, code: int = 1) -> None:
    """Let a Pod announce the next epoch, with how its worker ended so many seconds ago."""
    said = last_line_text(1, rig.clock.wall_s() - ago_s, line)
    await crew.annotate(pod, wire.epoch_annotations(2) | {wire.PHASES: f"v1,at=1,code={code}", wire.LAST_LINE: said})
    await rig.settle(0.2)


@pytest.mark.virtual_time
@pytest.mark.parametrize(
    ("first", "then"),
    [
        ((0.0, VICTIM), (0.0, CULPRIT)),
        ((0.1, VICTIM), (0.5, CULPRIT)),
        ((0.1, "RuntimeError: what nobody knows"), (0.5, CULPRIT)),
        ((0.1, ""), (0.5, "")),
        ((0.5, VICTIM), (0.1, CULPRIT)),
        ((0.5, VICTIM), (0.1, "")),
        ((0.1, VICTIM), (0.5, VICTIM)),
    ],
    ids=[
        "words",
        "both",
        "moment",
        "plain scripts",
        "words against the moment",
        "killed without a word",
        "two victims",
    ],
)
async def test_a_victim_that_tells_first_is_not_named(
    rig: Rig, first: tuple[float, str], then: tuple[float, str]
) -> None:
    """The record, the history, the condition, the metric and the last Event name the other; no write is added."""
    crew = await rig.started(jobset(restarts_max=9, jobs=[replicated_job("workers", pods=2)]))
    victim, culprit = crew.pods.values()
    before = rig.writes("/jobsets/train/status")
    await tell(rig, crew, victim, *first)
    assert (await crew.last_restart())["firstFailure"]["pod"] == victim
    await tell(rig, crew, culprit, *then)
    assert await crew.epochs() == (2, 1)
    assert rig.writes("/jobsets/train/status") == before + 2
    status = await crew.status()
    assert status[wire.LAST_GROUP_RESTART]["firstFailure"]["pod"] == culprit
    assert status[FIELD][-1]["pod"] == culprit
    assert status[FIELD][-1].get("lastLine", "") == then[1]
    assert culprit in (await crew.condition("InPlaceRestarting"))["message"]
    (event,) = await rig.events("GroupRestartFinished")
    assert f"first of all, a worker exited: pod {culprit}" in event["note"]
    named = {"namespace": "default", "jobset": "train", "node": "", "container": "worker", "reason": ""}
    assert rig.sample("inplace_first_failure_info", **named, pod=culprit, exit_code="1") == 1


@pytest.mark.virtual_time
@pytest.mark.parametrize(
    ("first", "then"),
    [
        ((0.5, CULPRIT), (0.1, "ValueError: another bad sample")),
        ((0.1, CULPRIT), (0.5, VICTIM)),
        ((0.5, ""), (0.1, "")),
    ],
    ids=["moment", "words against the moment", "plain scripts"],
)
async def test_what_followed_changes_nothing(rig: Rig, first: tuple[float, str], then: tuple[float, str]) -> None:
    """A failure that came later, or whose words name a peer, stays out of the record."""
    crew = await rig.started(jobset(restarts_max=9, jobs=[replicated_job("workers", pods=2)]))
    culprit, victim = crew.pods.values()
    await tell(rig, crew, culprit, *first)
    await tell(rig, crew, victim, *then)
    assert (await crew.last_restart())["firstFailure"]["pod"] == culprit
    (event,) = await rig.events("GroupRestartFinished")
    assert "first of all" not in event["note"]


@pytest.mark.virtual_time
@pytest.mark.parametrize("late_s", [0.1, 3.0], ids=["a moment later", "AFTER it failed"])
async def test_a_jobset_that_fails_names_it_too(rig: Rig, late_s: float) -> None:
    """The end waits for half a second for words that come late; those that come later still correct the record."""
    crew = await rig.started(jobset(restarts_max=0, jobs=[replicated_job("workers", pods=2)]))
    victim, culprit = crew.pods.values()
    kept = {"metadata": {"finalizers": ["tests/kept"]}}  # kubelet ends its containers meanwhile
    await rig.admin.patch(PODS, "default", culprit, kept)
    await tell(rig, crew, victim, 0.0, VICTIM)
    assert "terminalState" not in await crew.status()
    await rig.settle(late_s)
    assert (await crew.status()).get("terminalState") == (None if late_s < 0.5 else "Failed")
    await tell(rig, crew, culprit, late_s, CULPRIT)
    await rig.settle(2.0)
    status = await crew.status()
    assert status["terminalState"] == "Failed"
    failure = status[wire.LAST_GROUP_RESTART]["firstFailure"]
    assert (failure["pod"], failure["lastLine"]) == (culprit, CULPRIT)
    assert [(past["pod"], past["lastLine"]) for past in status[FIELD]] == [(culprit, CULPRIT)]


@pytest.mark.virtual_time
async def test_an_exception_before_the_hang_that_it_caused_is_named(rig: Rig) -> None:
    """Healthy Pods tell that they hang; the Pod whose rank had ended before is the first failure, and no hang is."""
    crew = await rig.started(jobset(restarts_max=9, jobs=[replicated_job("workers", pods=2)]))
    healthy, culprit = crew.pods.values()
    await rig.tell(crew, healthy, failure_text(WorkerFailure(1, None, rig.clock.wall_s(), 3, 8)))
    assert (await crew.last_restart())["trigger"] == "stalled"
    await tell(rig, crew, culprit, 3.0, "RuntimeError: loss is nan")
    await rig.run_epoch(crew, 2)
    last = await crew.last_restart()
    assert (last["trigger"], last["firstFailure"]["pod"]) == ("worker_exit", culprit)


@pytest.mark.virtual_time
async def test_a_timeout_because_of_a_hang_does_not_hide_it(rig: Rig) -> None:
    """A collective that times out in one rank is the sign of the hang that another Pod tells."""
    crew = await rig.started(jobset(restarts_max=9, jobs=[replicated_job("workers", pods=2)]))
    timed_out, silent = crew.pods.values()
    await tell(rig, crew, timed_out, 0.0, "RuntimeError: Watchdog caught collective operation timeout: WorkNCCL")
    await rig.tell(crew, silent, failure_text(WorkerFailure(1, None, rig.clock.wall_s(), 60, 8)))
    await rig.run_epoch(crew, 2)
    assert (await crew.last_restart())["trigger"] == "stalled"


def test_the_first_is_the_same_in_every_order() -> None:
    """Where each has a moment of its own."""
    failures = [
        Failure(f"pod-{number}", exit_code=1, finished_at=f"2026-01-01T00:00:0{number}.000Z", last_line=line)
        for number, line in enumerate([VICTIM, "", CULPRIT, VICTIM, "KeyError: 7"])
    ]
    for order in permutations(failures):
        known = order[0]
        for late in order[1:]:
            known = late if came_before(late, known) else known
        assert known.pod == "pod-1"


def test_whole_seconds_decide_nothing_within_one() -> None:
    """Kubelet cuts the moment: who is told first stays, unless the second before is meant."""
    known = Failure("a", exit_code=1, finished_at="2026-01-01T00:00:05Z")
    assert not came_before(Failure("b", exit_code=1, finished_at="2026-01-01T00:00:05Z"), known)
    assert not came_before(Failure("b", exit_code=1, finished_at="2026-01-01T00:00:05.100Z"), known)
    assert came_before(Failure("b", exit_code=1, finished_at="2026-01-01T00:00:04Z"), known)
    assert came_before(Failure("b", exit_code=1, finished_at="2026-01-01T00:00:04.900Z"), known)
