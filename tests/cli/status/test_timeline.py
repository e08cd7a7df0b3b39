"""`inplace timeline`: the rows of a real restart on the simulated cluster, and its whole pictures."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from inplace.cli.group.last_restart import LastRestart
from inplace.cli.group.pod_facts import Annotations, PodFact
from inplace.cli.status.timeline import (
    STAGE_WORDS,
    STYLES,
    RestartTimeline,
    Row,
    Stage,
    read_restart,
    restart_timeline,
    timeline_lines,
    timeline_title,
)
from inplace.common.kube.resources import KubeObject
from inplace.common.wire import names as wire
from inplace.common.wire.phases import RestartPhase, phases_text
from tests.cli.facts import pod
from tests.cli.scenes import connection, synced, training

pytestmark = pytest.mark.virtual_time

BEGAN = "2026-01-01T00:00:10Z"
BEGAN_S = 1767225610.0
SIDECAR = {RestartPhase.KUBELET: 1.8, RestartPhase.VIEW: 0.05}
SUPERVISOR = {RestartPhase.DEATH: 0.25}
OLD, DOWN, BACK, BARRIER, RUNS = Stage


def at(second: float) -> str:
    """Return a time of Kubernetes, seconds after 00:00:00."""
    return f"2026-01-01T00:{second // 60:02.0f}:{second % 60:09.6f}Z"


def moved(
    ended: int, back: int, announced: int | None, working: int | None, *, guarded: bool = False, **slot: int
) -> PodFact:
    """Return a Pod at epoch 2 with its moments as seconds after 00:00:00; None for a field that nobody keeps."""
    worker: KubeObject = {"name": "worker", "lastState": {"terminated": {"exitCode": 1, "finishedAt": at(ended)}}}
    if working is not None:
        worker["state"] = {"running": {"startedAt": at(working)}}
    agent = {"name": "agent", "state": {"running": {"startedAt": at(back)}}}
    written = [] if announced is None else [{"manager": wire.FIELD_MANAGER_AGENT, "time": at(announced)}]
    return pod(
        slot.get("index", 0),
        2,
        job="workers",
        job_index=slot.get("job", 0),
        spec={"containers": [{"command": ["inplace-agent", "guard", "--", "train"]} if guarded else {}]},
        status={"containerStatuses": [worker], "initContainerStatuses": [agent] if announced is not None else []},
        managedFields=written,
    )


def told(seen: PodFact, phases: dict[RestartPhase, float], at_s: float | None, failed: str | None = None) -> PodFact:
    """Return a Pod with what its agent told, `at_s` seconds after 00:00:00."""
    text = phases_text(phases, None if at_s is None else BEGAN_S - 10 + at_s)
    keys = Annotations(epoch="2", phases=text, worker_failed=failed)
    return replace(seen, metadata=replace(seen.metadata, annotations=keys))


def drawn(pods: list[PodFact], rows_max: int = 100, synced: float | None = 20) -> RestartTimeline:
    """Return the timeline of these Pods."""
    last = LastRestart(2, "worker_exit", BEGAN, None if synced is None else at(synced))
    timeline = restart_timeline(pods, last, now_s=BEGAN_S + 60, rows_max=rows_max)
    assert timeline is not None
    return timeline


def shown(row: Row) -> list[float | None]:
    """Return the ends of a row's stages, seconds after 00:00:00."""
    return [None if end_s is None else round(end_s - BEGAN_S + 10, 3) for end_s in row.ends]


def guarded(ended: int = 11, working: int = 13, at_s: float = 13.7, failed: str | None = None) -> PodFact:
    """Return a guarded Pod that told its moments; beside them are kubelet's."""
    return told(moved(ended, 13, 13, working, guarded=True), SIDECAR, at_s, failed)


ROWS: dict[str, tuple[PodFact, float | None, list[float | None]]] = {  # Pod, S, ends
    "whole seconds": (moved(11, 13, 14, 21), 20, [11, 13, 14, 21]),
    "moments never fall, though clocks differ": (moved(15, 14, 13, 21), 20, [15, 15, 15, 21]),
    "no worker runs before S": (moved(11, 13, 14, 20), 20.7, [11, 13, 14, 20.7]),
    "it waits": (moved(11, 13, 14, None), None, [11, 13, 14, None]),
    "a supervisor's phases, before S": (
        told(moved(2, 1, 14, 1), {RestartPhase.DEATH: 2.5}, None),
        None,
        [12.5, 15, 15, None],
    ),
    "a supervisor's phases": (told(moved(2, 1, 14, 1), {RestartPhase.DEATH: 2.5}, None), 20, [12.5, 15, 15, 20]),
    "a supervisor's own moments": (told(moved(2, 1, 14, 1), SUPERVISOR, 14.9), 15.1, [14.65, 14.9, 14.9, 15.1]),
    "the same where nobody keeps managedFields": (
        told(moved(2, 1, None, 1), SUPERVISOR, 14.9),
        15.1,
        [14.65, 14.9, 14.9, 15.1],
    ),
    "a guard's own moments": (guarded(), 20.7, [11.85, 13.65, 13.7, 20.7]),
    "without a guard kubelet ends and starts the worker": (
        told(moved(11, 13, 13, 20), SIDECAR, 13.7),
        20.7,
        [11, 13.65, 13.7, 20.7],
    ),
    "its agent told of the death": (guarded(failed="v1,epoch=1,code=1,at=1767225611250"), 20, [11.25, 13.65, 13.7, 20]),
    "of another epoch's": (guarded(failed="v1,epoch=2,code=1,at=1767225611250"), 20, [11.85, 13.65, 13.7, 20]),
    "of a hang": (guarded(failed="v1,epoch=1,stalled=4,at=1767225611250"), 20, [11.85, 13.65, 13.7, 20]),
    "of one long ago": (guarded(failed="v1,epoch=1,code=1,at=0000000000000"), 20, [11.85, 13.65, 13.7, 20]),
    "of nothing that can be read": (guarded(failed="garbage"), 20, [11.85, 13.65, 13.7, 20]),
    "a worker that took its grace, a container made after S": (
        guarded(ended=13, working=21),
        20,
        [13, 13.65, 13.7, 21],
    ),
    "a clock that is wrong": (guarded(at_s=16.7), 20, [11, 13, 13, 20]),
}


@pytest.mark.parametrize(("seen", "synced", "ends"), ROWS.values(), ids=ROWS)
def test_a_row_has_the_moments_of_its_pod(seen: PodFact, synced: float | None, ends: list[float | None]) -> None:
    """When the worker ended, the agent started, the Pod announced and the worker ran; Pods win over kubelet."""
    (row,) = drawn([seen], synced=synced).rows
    assert shown(row) == ends


def test_a_row_says_its_stage() -> None:
    """One after the other; a Pod that waits stays at the barrier up to now."""
    (row,) = drawn([moved(11, 13, 14, 21)]).rows
    stages = [row.stage_at(BEGAN_S + second) for second in (0, 2, 3.5, 8, 12)]
    assert stages == [OLD, DOWN, BACK, BARRIER, RUNS]
    waiting = drawn([moved(11, 13, 14, None)], synced=None)
    assert waiting.until_s > BEGAN_S + 60
    assert waiting.rows[0].stage_at(BEGAN_S + 59) is BARRIER


def test_a_row_of_many_shows_the_slowest() -> None:
    """Of several Pods each stage lasts until the last of them has left it."""
    whole = told(moved(11, 12, 15, 13, guarded=True, index=1), {}, 99.0)
    (row,) = drawn([guarded(), whole], rows_max=1).rows
    assert shown(row) == [11.85, 13.65, 15, 20]


@pytest.mark.parametrize(("jobs", "per_job"), [(1, 1000), (50, 20), (500, 2)])
def test_many_pods_share_rows(jobs: int, per_job: int) -> None:
    """Every Pod is in exactly one row, the rows fit, and a row shows its slowest Pod."""
    pods = [
        moved(11, 12, 13 + (index == per_job - 1), 21, index=index, job=job)
        for job in range(jobs)
        for index in range(per_job)
    ]
    timeline = drawn(pods, rows_max=40)
    assert sum(row.pods for row in timeline.rows) == jobs * per_job
    assert len(timeline.rows) <= 40
    assert max(row.ends[2] or 0 for row in timeline.rows) - BEGAN_S == 4
    if jobs > 1:
        assert {row.ends[2] for row in timeline.rows} == {BEGAN_S + 4}
    assert len({row.name for row in timeline.rows}) == len(timeline.rows)


def test_no_restart_is_no_picture() -> None:
    """A group at epoch 1 has had no restart, so no picture is drawn."""
    assert restart_timeline([], None, now_s=0.0, rows_max=10) is None


async def test_a_restart_of_the_simulated_cluster_is_drawn() -> None:
    """In a real restart the killed worker ends first, and every Pod announces before S is written."""
    async with training() as cluster:
        victim = cluster.pods()[1]["metadata"]["name"]
        cluster.kill_worker("default", victim)
        await synced(cluster, 2)
        state, pods = await read_restart(connection(cluster), "train")
        timeline = restart_timeline(pods, state.last, now_s=cluster.clock.wall_s(), rows_max=40)
        assert timeline is not None
        assert (timeline.epoch, len(timeline.rows)) == (2, 4)
        first = min(timeline.rows, key=lambda row: row.ends[0] or float("inf"))
        assert first.ends[0] == next(row.ends[0] for row in timeline.rows if row.name == victim)
        assert all(None not in row.ends for row in timeline.rows)
        told = [end_s for row in timeline.rows for end_s in row.ends[DOWN:BARRIER]]
        assert any(end_s is not None and end_s % 1 for end_s in told), "the agents told"
        assert victim in timeline_title(state, timeline, pods)


def test_a_narrow_terminal_gets_a_narrow_picture() -> None:
    """In forty columns every row fits: its bar uses the width beside the name, with the moments in order."""
    timeline = drawn([moved(11, 13, 14, 21, index=index) for index in range(3)])
    lines = [line.plain for line in timeline_lines(timeline, "title", columns=40)]
    rows = lines[1:4]
    assert all(len(line) <= 40 for line in rows)
    assert all(line.startswith("train-workers-0-") for line in rows)
    bars = [line.rpartition(" ")[2] for line in rows]
    assert {len(bar) for bar in bars} == {40 - len("train-workers-0-0") - 2}
    order = [character for character, _ in STYLES.values()]
    assert [order.index(character) for character in bars[0]] == sorted(order.index(one) for one in bars[0])
    assert bars[0][-1] == STYLES[RUNS][0]
    assert all(words in lines[5] for words in STAGE_WORDS.values())
