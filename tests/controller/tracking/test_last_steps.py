"""The Pods that were furthest behind when their epoch ended are named: in the status, the Event and a metric."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inplace.common.jobset.furthest_behind import NAMED_MAX, FurthestBehind, silent_of_entry, silent_text
from inplace.common.kube.resources import KubeObject
from inplace.common.protocol.last_progress import LastProgress
from inplace.common.wire import names as wire
from inplace.controller.tracking.memories import LastSteps
from tests.controller.crew import Crew
from tests.controller.manifests import jobset, replicated_job
from tests.controller.rig import Rig

pytestmark = pytest.mark.virtual_time

told = st.lists(
    st.builds(LastProgress, st.none() | st.integers(0, 3), st.integers(0, 5).map(float)), max_size=2 * NAMED_MAX
)


@given(told)
def test_the_fold_is_what_sorting_them_all_says(progresses: list[LastProgress]) -> None:
    """The lowest step, the longest silence first; a Pod without a step may have been as far behind."""
    silence = LastSteps()
    pods = {f"p{number:02}": progress for number, progress in enumerate(progresses)}
    for pod, progress in pods.items():
        silence.note(pod, f"node-of-{pod}", progress)
    steps = [progress.step for progress in progresses if progress.step is not None]
    lowest = [pod for pod, progress in pods.items() if progress.step == min(steps, default=None)]
    lowest.sort(key=lambda pod: (-pods[pod].quiet_s, pod))
    unknown = len(pods) - len(steps) if steps else 0
    expected = (
        FurthestBehind(tuple(lowest[:NAMED_MAX]), len(lowest) + unknown, pods[lowest[0]], f"node-of-{lowest[0]}")
        if lowest
        else None
    )
    assert silence.result(len(pods)) == expected


def test_the_only_rank_that_reports_is_not_to_blame_for_that() -> None:
    """Of four Pods one tells its steps: any of the others may hang."""
    silence = LastSteps()
    silence.note("p0", "n0", LastProgress(40, 4.0))
    one = silence.result(4)
    assert one is not None
    assert one.only == ""
    assert one.hang is None


async def announce(crew: Crew, epoch: int, *told: str, first: int = 0) -> None:
    """Let Pods announce an epoch, with what they know of their workers."""
    for pod, text in zip(list(crew.pods.values())[first:], told, strict=False):
        await crew.annotate(pod, wire.epoch_annotations(epoch) | {wire.PHASES: f"v1,view=64{text}"})


GROUP = jobset(jobs=[replicated_job(pods=4)])
FIRST = FurthestBehind(("p1",), 1, LastProgress(40, 4.0))
TIED = FurthestBehind(("p1", "p2"), 8, LastProgress(40, 4.0))


@pytest.mark.parametrize(
    ("silent", "trigger", "failed", "expected"),
    [
        (FIRST, "stalled", "p1", "pod p1 was silent first: at step 40, quiet for 4.0 s"),
        (FIRST, "worker_exit", "p7", "pod p1 was silent first: at step 40, quiet for 4.0 s"),
        (FIRST, "worker_exit", "p1", ""),
        (TIED, "worker_exit", "p2", ""),
        (None, "stalled", "p1", ""),
    ],
)
def test_who_was_silent_first_is_said_where_it_is_news(
    silent: FurthestBehind | None, trigger: str, failed: str, expected: str
) -> None:
    """A worker that died was furthest behind because it died; one that only ended after another hung was not."""
    assert silent_text(silent, trigger, {"pod": failed}) == expected


def test_a_tie_is_no_guess() -> None:
    """Where all hang in one collective, steps name nobody."""
    assert "8 pods were furthest behind, at step 40: steps cannot tell" in silent_text(TIED, "stalled", {"pod": "p9"})
    assert "was silent first: " not in silent_text(TIED, "stalled", {"pod": "p1"})


async def run_ended(rig: Rig, crew: Crew, epoch: int, step: int, made: int) -> KubeObject:
    """Let a worker of `epoch` die after `made` steps of 2 s, and return what the status says of goodput then."""
    first, *others = crew.pods.values()
    await rig.tell(crew, first, f"v1,epoch={epoch},code=1,at=1700000000123")
    texts = [f",quiet=1000,step={step},made={made},pace=20000"] + [f",quiet=1500,step={step + 1}"] * len(others)
    await announce(crew, epoch + 1, *texts)
    await rig.settle(0.1)
    found: KubeObject = (await crew.status()).get("goodput") or {}
    return found


async def test_goodput_rides_on_the_restart_s_end(rig: Rig) -> None:
    """Its numbers are those of the Pod furthest behind, a new controller goes on with them, and no write is added."""
    crew = await rig.started(GROUP)
    before = rig.writes("/jobsets/train/status")
    first = await run_ended(rig, crew, 1, 100, 99)
    assert rig.writes("/jobsets/train/status") == before + 2
    assert (first["restarts"], first["run"]["firstStep"], first["run"]["lastStep"]) == (0, 1, 100)
    await rig.settle(99.8)
    await rig.change_controller()
    second = await run_ended(rig, crew, 2, 110, 19)
    assert second["restarts"] == 1
    assert (second["lostMilliseconds"], second["restartMilliseconds"]) == (20_000, 61_000)
    assert (second["usefulMilliseconds"], second["lostSteps"]) == (180_000, 10)
    labels = {"namespace": "default", "jobset": "train", "scope": ""}
    assert rig.sample("inplace_goodput_seconds", 1, **labels, part="lost") == 20.0
    assert rig.sample("inplace_goodput_lost_steps", 1, **labels) == 10
    assert rig.sample("inplace_effective_training_ratio", 1, **labels) == pytest.approx(180 / 261)
    assert "run" not in await untold(rig, crew, 3), "nobody told of epoch 3"
    kept = (await crew.status())["restartHistory"]
    told = [(one["epoch"], one.get("lastStep"), one.get("lostSteps"), one.get("costMs")) for one in kept]
    assert told == [(2, 100, 10, 81_000), (3, 110, None, None), (4, None, None, None)]
    await ends_with_its_numbers(rig, crew)


async def ends_with_its_numbers(rig: Rig, crew: Crew) -> None:
    """Let the JobSet complete, and check that its status keeps goodput and history: `inplace report` reads them."""
    before = await crew.status()
    for name in await crew.jobs():
        await crew.finish_job(name, "Complete")
    await rig.settle(1.0)
    after = await crew.status()
    assert after["terminalState"] == "Completed"
    assert {name: after[name] for name in ("goodput", "restartHistory")} == {
        name: before[name] for name in ("goodput", "restartHistory")
    }


async def untold(rig: Rig, crew: Crew, epoch: int) -> KubeObject:
    """Restart a group whose Pods tell nothing; return what the status says of goodput then."""
    first, *_ = crew.pods.values()
    await rig.tell(crew, first, f"v1,epoch={epoch},code=1,at=1700000000123")
    await announce(crew, epoch + 1, *[""] * len(crew.pods))
    await rig.settle(0.1)
    found: KubeObject = (await crew.status())["goodput"]
    return found


async def test_each_scope_has_its_own_goodput(rig: Rig) -> None:
    """It stands beside the scope's epochs."""
    jobs = [replicated_job("a", pods=2), replicated_job("b", pods=2)]
    crew = await rig.started(jobset(jobs=jobs, annotations={wire.RESTART_SCOPE: "ReplicatedJob"}))
    first, *_ = crew.pods.values()
    await rig.tell(crew, first, "v1,epoch=1,code=1,at=1700000000123")
    await announce(crew, 2, ",quiet=1,step=5", ",quiet=2,step=6")
    await rig.settle(0.1)
    status = await crew.status()
    told = {entry["name"]: entry.get("goodput", {}).get("run", {}).get("lastStep") for entry in status["scopedEpochs"]}
    assert told == {"a": 5, "b": None}
    assert "goodput" not in status


@pytest.mark.parametrize(
    "entry",
    [{}, {"firstSilent": 1}, {"firstSilent": {}}, {"firstSilent": {"pods": []}}, {"firstSilent": {"pods": "p"}}],
)
def test_a_status_without_it_names_nobody(entry: dict[str, Any]) -> None:
    """Whoever wrote the status."""
    assert silent_of_entry(entry) is None


def test_it_is_read_back() -> None:
    """What is written, but for the pace, which a person does not ask for here."""
    silent = FurthestBehind(("a", "b"), 7, LastProgress(1199, 4.012))
    assert silent_of_entry({"firstSilent": silent.fields()}) == silent
    alone = FurthestBehind(("a",), 1, LastProgress(None, 60.0))
    assert silent_text(alone, "stalled", None) == "pod a was silent first: before any step, quiet for 60.0 s"
    unknown = FurthestBehind(("a",), 1, LastProgress(None, 0.0))
    assert silent_of_entry({"firstSilent": {"pods": ["a"], "step": "x"}}) == unknown
