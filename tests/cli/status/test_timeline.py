"""`inplace timeline`: the rows of a real restart on the simulated cluster, and its whole pictures."""

from __future__ import annotations

from typing import Any
from xml.etree import ElementTree as ET

import pytest
from msgspec.structs import replace

from inplace.cli.group.pod_facts import Annotations, PodFact
from inplace.cli.group.state import LastRestart
from inplace.cli.status.restart_timeline import STAGE_WORDS, RestartTimeline, Row, Stage, restart_timeline
from inplace.cli.status.timeline import STYLES, read_restart, timeline_lines, timeline_title
from inplace.cli.status.timeline_svg import HEIGHT_MAX, ROWS_MAX, timeline_svg
from inplace.common.kube.resources import KubeObject
from inplace.common.wire import names as wire
from inplace.common.wire.phases import RestartPhase, phases_text
from tests.cli.facts import pod
from tests.cli.scenes import connection, synced, training

pytestmark = pytest.mark.virtual_time

BEGAN = "2026-01-01T00:00:10Z"
BEGAN_S = 1767225610.0


def moved(
    index: int, *, ended: int, back: int, announced: int, working: int | None, job: int = 0, guarded: bool = False
) -> PodFact:
    """Return a Pod at epoch 2 with its moments as seconds after 00:00:00."""

    def at(second: int) -> str:
        return f"2026-01-01T00:{second // 60:02d}:{second % 60:02d}Z"

    worker: KubeObject = {"name": "worker", "lastState": {"terminated": {"exitCode": 1, "finishedAt": at(ended)}}}
    if working is not None:
        worker["state"] = {"running": {"startedAt": at(working)}}
    agent = {"name": "agent", "state": {"running": {"startedAt": at(back)}}}
    return pod(
        index,
        2,
        job="workers",
        job_index=job,
        spec={"containers": [{"command": ["inplace-agent", "guard", "--", "train"]} if guarded else {}]},
        status={"containerStatuses": [worker], "initContainerStatuses": [agent]},
        managedFields=[{"manager": wire.FIELD_MANAGER_AGENT, "time": at(announced)}],
    )


def drawn(pods: list[PodFact], rows_max: int = 100, synced: str | None = "2026-01-01T00:00:20Z") -> RestartTimeline:
    """Return the timeline of these Pods."""
    last = LastRestart(2, "worker_exit", BEGAN, synced)
    timeline = restart_timeline(pods, last, now_s=BEGAN_S + 60, rows_max=rows_max)
    assert timeline is not None
    return timeline


def test_a_row_has_the_moments_of_its_pod() -> None:
    """A row shows when the worker ended, the agent started, the Pod announced and the worker ran."""
    (row,) = drawn([moved(0, ended=11, back=13, announced=14, working=21)]).rows
    assert [end_s - BEGAN_S for end_s in row.ends if end_s is not None] == [1, 3, 4, 11]
    stages = [row.stage_at(BEGAN_S + second) for second in (0, 2, 3.5, 8, 12)]
    assert stages == [Stage.OLD, Stage.DOWN, Stage.BACK, Stage.BARRIER, Stage.RUNS]


def test_moments_never_fall() -> None:
    """A stage never begins before the one before it, though clocks in whole seconds may differ by one."""
    (row,) = drawn([moved(0, ended=15, back=14, announced=13, working=21)]).rows
    assert [end_s - BEGAN_S for end_s in row.ends if end_s is not None] == [5, 5, 5, 11]


def test_no_worker_is_drawn_before_the_sync() -> None:
    """No worker is drawn before the sync, though the time of S is rounded down to whole seconds."""
    (row,) = drawn([moved(0, ended=11, back=13, announced=14, working=20)], synced="2026-01-01T00:00:20.700000Z").rows
    assert row.ends[-1] == pytest.approx(BEGAN_S + 10.7)


def test_who_waits_has_no_end_yet() -> None:
    """The row of a waiting Pod stays at the barrier up to now."""
    timeline = drawn([moved(0, ended=11, back=13, announced=14, working=None)], synced=None)
    assert timeline.rows[0].ends[-1] is None
    assert timeline.until_s > BEGAN_S + 60
    assert timeline.rows[0].stage_at(BEGAN_S + 59) is Stage.BARRIER


def test_a_supervised_worker_is_read_from_the_phases() -> None:
    """A supervised worker's death is computed from the Pod's announcement and its phases annotation."""
    seen = moved(0, ended=2, back=1, announced=14, working=1)
    meta = replace(
        seen.metadata,
        annotations=Annotations(epoch="2", phases=phases_text({RestartPhase.DEATH: 2.5})),
    )
    raw = replace(seen, metadata=meta)
    (row,) = drawn([raw], synced=None).rows
    assert [end_s and end_s - BEGAN_S for end_s in row.ends] == [2.5, 5, 5, None]
    (row,) = drawn([raw]).rows
    assert [end_s - BEGAN_S for end_s in row.ends if end_s is not None] == [2.5, 5, 5, 10]


def told(seen: PodFact, phases: dict[RestartPhase, float], at_s: float, failed: str | None = None) -> PodFact:
    """Return a Pod with what its agent told, `at_s` seconds after 00:00:00."""
    text = phases_text(phases, BEGAN_S - 10 + at_s)
    keys = Annotations(epoch="2", phases=text, worker_failed=failed)
    return replace(seen, metadata=replace(seen.metadata, annotations=keys))


def shown(row: Row) -> tuple[Any, Any]:
    """Return the ends of a row's stages, seconds after 00:00:00, and which of them are whole seconds."""
    return [None if end_s is None else round(end_s - BEGAN_S + 10, 3) for end_s in row.ends], set(row.whole)


SIDECAR = {RestartPhase.KUBELET: 1.8, RestartPhase.VIEW: 0.05}


def test_a_guarded_pod_tells_its_own_moments() -> None:
    """To the millisecond: its worker's end with its agent's, the agent's start, its announcement; S is the lift."""
    seen = told(moved(0, ended=11, back=13, announced=13, working=13, guarded=True), SIDECAR, 13.7)
    (row,) = drawn([seen], synced="2026-01-01T00:00:20.700000Z").rows
    assert shown(row) == ([11.85, 13.65, 13.7, 20.7], set())


def test_without_a_guard_kubelet_ends_and_starts_the_worker() -> None:
    """Only the agent's own moments are exact."""
    seen = told(moved(0, ended=11, back=13, announced=13, working=20), SIDECAR, 13.7)
    (row,) = drawn([seen], synced="2026-01-01T00:00:20.700000Z").rows
    assert shown(row) == ([11, 13.65, 13.7, 20.7], {Stage.OLD, Stage.BARRIER})


@pytest.mark.parametrize(
    ("failed", "expected"),
    [
        ("v1,epoch=1,code=1,at=1767225611250", 11.25),
        ("v1,epoch=2,code=1,at=1767225611250", 11.85),
        ("v1,epoch=1,stalled=4,at=1767225611250", 11.85),
        ("v1,epoch=1,code=1,at=0000000000000", 11.85),
        ("garbage", 11.85),
    ],
)
def test_a_dead_worker_s_end_is_when_its_agent_told(failed: str, expected: float) -> None:
    """The agent left later; another epoch's failure, a hang, and a moment far away say nothing."""
    seen = moved(0, ended=11, back=13, announced=13, working=13, guarded=True)
    (row,) = drawn([told(seen, SIDECAR, 13.7, failed)]).rows
    assert shown(row)[0][0] == expected


def test_kubelet_s_seconds_stay_where_the_pod_says_otherwise() -> None:
    """A worker that took its grace, a container that was made after S, and a clock that is wrong."""
    (row,) = drawn([told(moved(0, ended=13, back=13, announced=13, working=21, guarded=True), SIDECAR, 13.7)]).rows
    assert shown(row) == ([13, 13.65, 13.7, 21], {Stage.OLD, Stage.BARRIER})
    (row,) = drawn([told(moved(0, ended=11, back=13, announced=13, working=13, guarded=True), SIDECAR, 16.7)]).rows
    assert shown(row) == ([11, 13, 13, 20], {Stage.OLD, Stage.DOWN, Stage.BACK})


def test_a_supervised_pod_tells_its_own_moments() -> None:
    """Its worker's death, its announcement, and S: nothing is left of whole seconds."""
    seen = told(moved(0, ended=2, back=1, announced=14, working=1), {RestartPhase.DEATH: 0.25}, 14.9)
    (row,) = drawn([seen], synced="2026-01-01T00:00:15.100000Z").rows
    assert shown(row) == ([14.65, 14.9, 14.9, 15.1], set())
    alone = replace(seen.status, init_container_statuses=None)
    unkept = replace(seen, metadata=replace(seen.metadata, managed_fields=None), status=alone)
    (row,) = drawn([unkept], synced="2026-01-01T00:00:15.100000Z").rows
    assert shown(row) == ([14.65, 14.9, 14.9, 15.1], set())


def test_a_row_of_many_marks_what_is_drawn() -> None:
    """Of several Pods the slowest is shown, and it is marked where its moment is a whole second."""
    exact = told(moved(0, ended=11, back=13, announced=13, working=13, guarded=True), SIDECAR, 13.7)
    whole = told(moved(1, ended=11, back=12, announced=15, working=13, guarded=True), {}, 99.0)
    (row,) = drawn([exact, whole], rows_max=1).rows
    assert shown(row) == ([11.85, 13.65, 15, 20], {Stage.BACK})


@pytest.mark.parametrize(("jobs", "per_job"), [(1, 1000), (50, 20), (500, 2)])
def test_many_pods_share_rows(jobs: int, per_job: int) -> None:
    """Every Pod is in exactly one row, the rows fit, and a row shows its slowest Pod."""
    pods = [
        moved(index, job=job, ended=11, back=12, announced=13 + (index == per_job - 1), working=21)
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


def test_the_picture_of_five_thousand_pods_is_small_and_well_formed() -> None:
    """Below 200 kB, one group for each row, every rectangle inside the picture."""
    rows = [Row(f"workers-{n}", 25, tuple(BEGAN_S + end for end in (1, 3, 4, 8 + n / 100))) for n in range(ROWS_MAX)]
    picture = timeline_svg(RestartTimeline(2, BEGAN_S, BEGAN_S + 12, BEGAN_S + 7, rows, None), "a < b & c")
    root = ET.fromstring(picture)  # noqa: S314 - our own text
    assert len(picture) < 200_000
    assert len(root.findall("{*}g")) == ROWS_MAX
    width, height = (float(number) for number in root.attrib["viewBox"].split()[2:])
    assert height < HEIGHT_MAX + 200
    for rect in root.iter("{http://www.w3.org/2000/svg}rect"):
        x, y = float(rect.attrib.get("x", 0)), float(rect.attrib.get("y", 0))
        assert x >= 0
        assert x + float(rect.attrib["width"]) <= width
        assert y + float(rect.attrib["height"]) <= height


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
        assert all({Stage.DOWN, Stage.BACK}.isdisjoint(row.whole) for row in timeline.rows), "the agents told"
        assert victim in timeline_title(state, timeline, pods)


def test_a_narrow_terminal_gets_a_narrow_picture() -> None:
    """In forty columns every row fits: its bar uses the width beside the name, with the moments in order."""
    timeline = drawn([moved(index, ended=11, back=13, announced=14, working=21) for index in range(3)])
    lines = [line.plain for line in timeline_lines(timeline, "title", columns=40)]
    rows = lines[1:4]
    assert all(len(line) <= 40 for line in rows)
    assert all(line.startswith("~train-workers-0-") for line in rows)
    bars = [line.rpartition(" ")[2] for line in rows]
    assert {len(bar) for bar in bars} == {40 - len("train-workers-0-0") - 3}
    order = [character for character, _ in STYLES.values()]
    assert [order.index(character) for character in bars[0]] == sorted(order.index(one) for one in bars[0])
    assert bars[0][-1] == STYLES[Stage.RUNS][0]
    assert all(words in lines[5] for words in STAGE_WORDS.values())
