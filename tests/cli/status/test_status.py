"""`inplace status`: equal results by three ways of reading, in two requests; a list; a watch; narrow terminals."""

from __future__ import annotations

import asyncio
import io
import re
from dataclasses import replace

import pytest
from rich.console import Console

from inplace.cli.connection import WHOLE_MAX
from inplace.cli.group.last_restart import LastRestart
from inplace.cli.group.pod_table import ACCEPT, decode_table
from inplace.cli.group.read import METADATA, read_group, read_jobsets, read_pods
from inplace.cli.group.state import GroupState, group_state
from inplace.cli.refusal import RefusalError
from inplace.cli.status.document import list_data, status_data
from inplace.cli.status.view import list_picture, status_picture
from inplace.cli.status.watch import StatusWatch, watch_status
from inplace.cli.terminal.moments import duration_text
from inplace.cli.terminal.screen import show
from inplace.common.jobset.headline import GroupPhase
from inplace.common.kube.http.request import Request
from inplace.common.kube.resources import JOBSETS, PODS, KubeObject
from inplace.common.wire import names as wire
from tests.cli.facts import drawn, jobset, table
from tests.cli.scenes import Spy, all_work, connection, kill, seen, status, synced, training, until

pytestmark = pytest.mark.virtual_time


async def test_a_running_group() -> None:
    """Whole Pods and a Table without objects give the same status of a running group, in two requests each."""
    async with training() as cluster:
        transport = Spy(cluster.server)
        asked = transport.connection()
        small = group_state(*await read_group(asked, "train"))
        large = group_state(*await read_group(replace(asked, whole_max=3), "train"))
        assert len(transport.asked) == 4
        assert "includeObject=None" in transport.asked[3].path
        for state in (small, large):
            assert (state.phase, state.expected, state.arrived) == (GroupPhase.RUNNING, 4, 4)
            assert (state.scopes[0].working, dict(state.scopes[0].epochs)) == (4, {1: 4})
            assert state.stragglers == []
        assert "epoch 1 · 4 of 4 Pods · 4 working" in drawn(small, 80)


@pytest.mark.slow
async def test_a_group_is_large_beyond_three_hundred_pods() -> None:
    """The Pods of a group above 300 are read as a Table."""
    async with training(WHOLE_MAX + 1) as cluster:
        transport = Spy(cluster.server)
        asked = transport.connection()
        state = group_state(*await read_group(asked, "train"))
        assert "includeObject=None" in transport.asked[1].path
        assert (state.phase, state.expected, state.arrived) == (GroupPhase.RUNNING, WHOLE_MAX + 1, WHOLE_MAX + 1)


async def test_a_group_that_has_just_synced_misses_nobody() -> None:
    """Right after a sync no way of reading calls a Pod late: workers that are about to start have announced S."""
    async with training() as cluster:
        kill(cluster)
        await until(cluster, lambda: status(cluster).get("syncedEpoch") == 2)
        while not all_work(cluster, 4):
            large = await seen(cluster, whole_max=3)
            for state in (await seen(cluster), large):
                assert (state.phase, state.stragglers) == (GroupPhase.RUNNING, [])
            await cluster.clock.sleep(0.05)


async def test_a_gathering_group() -> None:
    """Whole Pods and metadata alone both name the two Pods that are not at the next epoch, in two requests each."""
    async with training() as cluster:
        kill(cluster)
        await until(cluster, lambda: 2 <= sum(epoch_of(pod) == 2 for pod in cluster.pods()) < 4)
        transport = Spy(cluster.server)
        asked = transport.connection()
        small = group_state(*await read_group(asked, "train"))
        large = group_state(*await read_group(replace(asked, whole_max=3), "train"))
        assert transport.asked[3].headers["accept"] == METADATA
        assert len(transport.asked) == 4
        late = {pod["metadata"]["name"] for pod in cluster.pods() if epoch_of(pod) != 2}
        for state in (small, large):
            assert state.phase is GroupPhase.RESTARTING
            assert {one.pod for one in state.stragglers} == late
            assert state.scopes[0].target == 2
        text = drawn(small, 80)
        assert all(name in text for name in late)


def epoch_of(pod: KubeObject) -> int:
    """Return a Pod's announced epoch."""
    return wire.epoch_of_pod(pod["metadata"].get("annotations") or {}) or 0


@pytest.mark.parametrize(
    ("cells", "is_late", "reason"),
    [
        (("2/2", "Running", "node-1"), False, ""),
        (("1/2", "Init:0/1", "node-1"), False, ""),  # it announced, because S is synced; its containers are starting
        (("0/2", "Pending", "<none>"), True, "Pending: unschedulable"),
        (("0/2", "SchedulingGated", "<none>"), True, "held by a scheduling gate"),
        (("0/2", "ContainerCreating", "node-1"), True, "containers are being created"),
        (("0/2", "ImagePullBackOff", "node-1"), True, "image cannot be pulled"),
        (("0/2", "Init:ErrImagePull", "node-1"), True, "image cannot be pulled"),
        (("0/2", "Init:CreateContainerConfigError", "node-1"), True, "container cannot be created"),
        (("2/2", "Terminating", "node-1"), True, "terminating"),
        (("2/2", "NodeLost", "node-1"), True, "node lost"),
        (("0/2", "Evicted", "node-1"), True, "Pod failed: Evicted"),
        (("0/2", "Completed", "node-1"), False, ""),  # completed in the running epoch
    ],
)
def test_rows_of_a_table(cells: tuple[str, str, str], is_late: bool, reason: str) -> None:
    """Each status that the server prints for a failing Pod becomes a reason; a Pod that is only not ready has none."""
    status = wire.status_of_epochs(7, 6)
    raw = jobset(1, status=status)
    pods = decode_table(table(("train-big-job-0-0-x7k2p", *cells)), "train", 7).pods
    state = group_state(raw, pods)
    assert [one.reason.startswith(reason) for one in state.stragglers] == [True] * is_late
    assert state.phase is (GroupPhase.DEGRADED if is_late else GroupPhase.RUNNING)


def test_a_huge_group_in_a_narrow_terminal() -> None:
    """In forty columns no line is wider, and ten of 5,000 missing Pods are named."""
    state = group_state(jobset(5_000, status=wire.status_of_epochs(2, 2)), ())
    text = drawn(state, columns=40)
    assert all(len(line) <= 40 for line in text.splitlines())
    assert "0 of 5,000 Pods" in text
    assert text.count("big-job-0-") == 10
    assert len(text.splitlines()) < 40
    assert "  big-job-0-0\n    no Pod\n" in re.sub(r" +\n", "\n", text)
    assert len(status_data(state)["stragglers"]) == 5_000


@pytest.mark.parametrize("columns", ["40", "80"])
def test_a_pipe_gets_whole_lines(
    columns: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever width is asked for, a reason in a pipe is neither cut nor wrapped."""
    monkeypatch.setenv("COLUMNS", columns)
    state = group_state(jobset(1, status=wire.status_of_epochs(2, 2)), ())
    words = "unschedulable: 0/4 nodes are available: 4 Insufficient nvidia.com/gpu, and no more than that"
    scopes = tuple(
        replace(one, stragglers=tuple(replace(each, detail=words) for each in one.stragglers)) for one in state.scopes
    )
    show(status_picture(replace(state, scopes=scopes), now_s=0.0, columns=int(columns)))
    assert f"{words}\n" in capsys.readouterr().out


def test_almost_all_is_not_all() -> None:
    """4,999 of 5,000 is not 100 %."""
    rows = [(f"train-big-job-0-{index}-abcde", "2/2", "Running", "n") for index in range(4_999)]
    state = group_state(jobset(5_000, status=wire.status_of_epochs(1, 1)), decode_table(table(*rows), "train", 2).pods)
    assert "99.9 %" in drawn(state, 80)


@pytest.mark.parametrize(
    ("changes", "status", "phase", "said"),
    [
        ({"managedBy": "example.com/x"}, {}, GroupPhase.STARTING, "managed by example.com/x"),
        ({"suspend": True}, {}, GroupPhase.SUSPENDED, "Suspended"),
        ({"failurePolicy": {"maxRestarts": 1}}, {}, GroupPhase.OTHER, "does not restart in place"),
        ({"replicatedJobs": "none"}, {}, GroupPhase.UNREADABLE, "Unreadable: "),
        (
            {},
            {"conditions": [{"type": "Failed", "status": "True", "message": "worn out"}]},
            GroupPhase.FAILED,
            "worn out",
        ),
        (
            {},
            {"conditions": [{"type": "ContainersBlocked", "status": "True", "message": "2 Pods: image"}]},
            GroupPhase.STARTING,
            "ContainersBlocked: 2 Pods: image",
        ),
        ({}, {"conditions": [{"type": "Completed", "status": "True"}]}, GroupPhase.COMPLETED, "Completed"),
        (
            {},
            wire.status_of_epochs(6, 6)
            | {"conditions": [{"type": "BarrierWaiting", "status": "True", "message": "4,998/5,000 at epoch 7"}]},
            GroupPhase.RESTARTING,
            "barrier stuck: 4,998/5,000 at epoch 7",
        ),
    ],
)
def test_every_kind_of_jobset_is_shown(changes: KubeObject, status: KubeObject, phase: GroupPhase, said: str) -> None:
    """Every kind of JobSet is shown with its phase and text, and the list's line agrees."""
    raw = jobset(2, status=status, **changes)
    state = group_state(raw, ())
    assert state.phase is phase
    assert said in drawn(state, 80)
    assert list_data(raw)["phase"] == phase.value


async def test_the_list_is_one_request() -> None:
    """The list of JobSets is one request: phase and epoch come from the statuses."""
    async with training() as cluster:
        transport = Spy(cluster.server)
        asked = transport.connection()
        jobsets = await read_jobsets(asked)
        assert len(transport.asked) == 1
        (row,) = [list_data(one) for one in jobsets]
        assert (row["name"], row["phase"], row["epochs"], row["jobs"]) == ("train", "Running", [1], 1)
        screen = Console(file=io.StringIO(), width=100)
        screen.print(list_picture(jobsets, now_s=cluster.clock.wall_s()))
        assert "train   Running" in screen.file.getvalue()  # type: ignore[attr-defined]


async def test_large_lists_come_in_pages() -> None:
    """No Pod is lost between two pages."""
    async with training() as cluster:
        pods = await read_pods(connection(cluster), "train", page=3)
        assert len({pod.name for pod in pods.pods}) == 4


@pytest.mark.virtual_time
async def test_a_watch_follows_a_restart_to_the_end(capsys: pytest.CaptureFixture[str]) -> None:
    """A watch into a pipe prints a line for each change, sends three requests and the watches, and ends at the sync."""
    async with training(maxRestarts=1) as cluster:
        transport = Spy(cluster.server)
        asked = transport.connection()
        watching = asyncio.create_task(watch_status(asked, "train", "table"))
        await cluster.clock.sleep(5)
        kill(cluster)
        await synced(cluster, 2)
        await cluster.clock.sleep(60)
        assert len(transport.asked) == 3
        kill(cluster)
        await watching
        lines = capsys.readouterr().out.splitlines()
    said = [line.partition(" ")[2] for line in lines]
    assert said[0].startswith("Running epoch 1: 4 of 4")
    assert any(line.startswith("Restarting epoch 2") for line in said)
    assert any(line.startswith("Running epoch 2: 4 of 4") for line in said)
    assert said[-1].startswith("Failed")


@pytest.mark.virtual_time
async def test_a_watch_of_a_large_group_begins_with_a_table(capsys: pytest.CaptureFixture[str]) -> None:
    """A large group's watch starts from rows; a Pod known only from its row is shown as missing when it is deleted."""
    async with training() as cluster:
        transport = Spy(cluster.server)
        asked = transport.connection()
        watching = asyncio.create_task(watch_status(replace(asked, whole_max=3), "train", "table"))
        await cluster.clock.sleep(5)
        assert "includeObject=None" in transport.asked[2].path
        gone = cluster.pods()[0]["metadata"]["name"]
        await cluster.client("user").delete(PODS, "default", gone, grace_period_s=0)
        await synced(cluster, 2)
        await cluster.clock.sleep(5)
        assert len(transport.asked) == 3
        await cluster.client("user").delete(JOBSETS, "default", "train")
        with pytest.raises(RefusalError, match="was deleted"):
            await watching
    said = [line.partition(" ")[2] for line in capsys.readouterr().out.splitlines()]
    assert said[0] == "Running epoch 1: 4 of 4"
    assert any("workers-0-0 (no Pod)" in line for line in said)
    assert "Running epoch 2: 4 of 4" in said


async def test_a_tick_counts_nothing_anew() -> None:
    """While nothing changes, a tick moves the picture's clock and looks at no Pod again."""
    async with training() as cluster:
        there = connection(cluster)
        watch = StatusWatch(there, "train")
        following = [asyncio.create_task(one.run()) for one in (watch.jobsets, watch.pods)]
        await cluster.clock.sleep(5)
        first = watch.state()
        await cluster.clock.sleep(5)
        assert watch.state() is first
        kill(cluster)
        await cluster.clock.sleep(5)
        assert watch.state() is not first
        for task in following:
            task.cancel()
        await asyncio.gather(*following, return_exceptions=True)


def test_the_time_left_goes_by_when_the_restart_began() -> None:
    """All arrivals since the restart began count: three of four in nine seconds give three seconds more."""
    raw = jobset(4, status=wire.status_of_epochs(1, 1))
    rows = [(f"train-big-job-0-{index}-abcde", "2/2", "Running", "n") for index in range(3)]
    state = group_state(raw, decode_table(table(*rows), "train", 2).pods)
    assert state.left_s(9.0) is None
    last = LastRestart(2, started_at="1970-01-01T00:00:00Z")
    began = GroupState(state.namespace, state.name, state.phase, state.jobset, state.scopes, 3, last=last)
    assert began.left_s(9.0) == pytest.approx(3.0)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(-1, "0.0 s"), (0.84, "0.8 s"), (42.4, "42 s"), (252, "4m12s"), (11_100, "3h05m"), (1_036_800, "12d")],
)
def test_durations(seconds: float, text: str) -> None:
    """A duration has at most two units."""
    assert duration_text(seconds) == text


async def test_the_table_is_asked_for_as_the_server_offers_it() -> None:
    """The simulator answers the Table request with the columns that status reads."""
    async with training() as cluster:
        path = JOBSETS.path("default").replace("apis/jobset.x-k8s.io/v1alpha2", "api/v1").replace("jobsets", "pods")
        request = Request("GET", f"{path}?includeObject=None", {"accept": ACCEPT})
        body = (await cluster.client().send(request, timeout_s=5)).body
        assert [pod.slot is not None for pod in decode_table(body, "train", 1).pods] == [True] * 4
        assert (await seen(cluster)).phase is GroupPhase.RUNNING


def test_who_starts_later_is_not_missing() -> None:
    """With InOrder a replicatedJob without Pods has not started; once it has one Pod, the others are missing."""
    first = {"name": "a", "replicas": 1, "template": {"spec": {"parallelism": 1, "completions": 1}}}
    second = {"name": "b", "replicas": 1, "template": {"spec": {"parallelism": 2, "completions": 2}}}
    order = {"startupPolicyOrder": "InOrder"}
    raw = jobset(1, status=wire.status_of_epochs(1, 0), replicatedJobs=[first, second], startupPolicy=order)
    ready = ("2/2", "Running", "node-1")
    alone = group_state(raw, decode_table(table(("train-a-0-0-abcde", *ready)), "train", 1).pods)
    assert (alone.phase, alone.expected, list(alone.not_due)) == (GroupPhase.RUNNING, 1, ["b"])
    assert "not started yet, by startup order: b" in drawn(alone, 80)
    rows = table(("train-a-0-0-abcde", *ready), ("train-b-0-0-abcde", *ready))
    begun = group_state(raw, decode_table(rows, "train", 1).pods)
    assert (begun.phase, begun.expected, begun.arrived, list(begun.not_due)) == (GroupPhase.DEGRADED, 3, 2, [])


def test_who_completed_is_waited_for_only_by_a_restart() -> None:
    """A completed Pod is not waited for while its epoch runs; a restart waits for it."""
    rows = table(
        ("train-big-job-0-0-abcde", "2/2", "Running", "n"), ("train-big-job-0-1-abcde", "0/2", "Completed", "n")
    )
    runs = group_state(jobset(2, status=wire.status_of_epochs(1, 0)), decode_table(rows, "train", 1).pods)
    assert (runs.phase, runs.arrived, runs.late) == (GroupPhase.DEGRADED, 2, 0)
    restarts = group_state(jobset(2, status=wire.status_of_epochs(1, 1)), decode_table(rows, "train", 1).pods)
    assert restarts.phase is GroupPhase.RESTARTING
    assert "completed" in [one.why.value for one in restarts.stragglers]
