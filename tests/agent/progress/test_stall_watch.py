"""The watchdog's limits: from the environment, and from the JobSet's annotations while the job runs."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from inplace.agent.announce.jobset_events import JobSetEvents, Seen
from inplace.agent.progress.stall_watch import StallWatch
from inplace.agent.progress.watchdog import Watchdog
from inplace.agent.report.log import Log
from inplace.agent.settings.config import AgentConfig
from inplace.agent.settings.watch_settings import WatchSettings
from inplace.common.bare.record import replace
from inplace.common.kube.clock import Clock, LoopClock
from inplace.common.protocol.failure_report import WorkerStalled
from inplace.common.protocol.rank import StallSettings
from inplace.common.wire import names as wire
from inplace.common.wire.last_progress import parse_last_progress
from inplace.common.wire.names import PHASES
from tests.agent.progress.test_watchdog import STEPS, end, next_epoch, steps, told, watched
from tests.agent.progress.test_watchdog_files import SlowFiles
from tests.agent.rig import CONFIG, NotedLog, Running
from tests.agent.scripted_server import COLUMNS, line, plain, table
from tests.agent.supervisor_rig import main_of

pytestmark = pytest.mark.asyncio

FOLDER = replace(CONFIG, progress_dir="/run/progress")
ON = "0.5"
OFF = None


class Kennel:
    """A stall watch over files in memory, and what it found."""

    def __init__(self, config: AgentConfig = FOLDER, problem: str = "") -> None:
        self.log = NotedLog()
        self.made: list[Watchdog] = []
        self.found: list[WorkerStalled] = []
        self.stalls = StallWatch(config, make=self.make, clock=LoopClock(), log=self.log, problem=problem)

    def make(self, own: WatchSettings, limits: StallSettings, clock: Clock, log: Log) -> Watchdog:
        """Make a watchdog of a rank that stops after its fourth change."""
        self.made.append(Watchdog(limits, SlowFiles, clock=clock, log=log))
        return self.made[0]

    @property
    def limits(self) -> StallSettings:
        """Return the limits that hold."""
        return self.made[0].limits if self.made else StallSettings()

    async def watch(self, epoch: int, within_s: float) -> bool:
        """Start a worker, watch it for a while, and say whether it was found."""
        self.stalls.begin(epoch)
        try:
            async with asyncio.timeout(within_s):
                await self.stalls.watch(Running(), self.found.append)
        except TimeoutError:
            pass
        return any(found.epoch == epoch for found in self.found)


def own(stall_s: float | None, start_s: float | None, decides: tuple[bool, bool]) -> AgentConfig:
    """Return a configuration whose environment decides some of the limits."""
    return replace(FOLDER, watch=WatchSettings(StallSettings(stall_s, start_s), FOLDER.progress_dir, "", decides))


async def test_an_annotation_switches_the_watchdog_on_and_off() -> None:
    """No watchdog is made before; every worker is told the folder."""
    kennel = Kennel()
    kennel.stalls.take_limits(OFF)
    assert (kennel.made, kennel.stalls.folder) == ([], "/run/progress")
    assert not await kennel.watch(1, 0.1)
    kennel.stalls.take_limits(ON)
    assert await kennel.watch(2, 10)
    kennel.stalls.take_limits(OFF)
    assert not await kennel.watch(3, 1.5)
    assert len(kennel.made) == 1
    assert [line["stall_after_s"] for line in kennel.log.of("stall_limits")] == [0.5, None]


@pytest.mark.parametrize(
    ("config", "text", "limits"),
    [
        (FOLDER, "start=60.5,after=9", StallSettings(9.0, 60.5)),
        (FOLDER, "after=0,start=60", StallSettings(None, 60.0)),
        (own(5.0, None, (True, False)), "after=9,start=60", StallSettings(5.0, 60.0)),
        (own(None, 7.0, (True, True)), "after=9,start=60", StallSettings(None, 7.0)),
        (own(None, None, (True, False)), "9", StallSettings()),
    ],
    ids=["both", "zero is off", "flag wins", "both flags win", "a flag of 0 wins"],
)
async def test_the_environment_wins_over_the_annotation(config: AgentConfig, text: str, limits: StallSettings) -> None:
    """Each limit by itself."""
    kennel = Kennel(config)
    kennel.stalls.take_limits(text)
    assert kennel.limits == limits


@pytest.mark.parametrize("text", ["", "soon", "-1", "0.1", "604801", "nan", "inf", "1e400", "9" * 5_000])
async def test_a_bad_annotation_changes_nothing(text: str) -> None:
    """The message has the name, what was expected and what was seen, once for each value; the old limits hold."""
    kennel = Kennel()
    kennel.stalls.take_limits("after=9,start=60")
    for _ in range(3):
        kennel.stalls.take_limits(f"after={text[:40]},start=70")
    assert kennel.limits == StallSettings(9.0, 60.0)
    (refused,) = kennel.log.of("stall_limit_refused")
    expected = f"seconds from 0.5 to 604800, or 0 for off, saw {text[:40]!r}" if text else "name=value"
    assert refused["message"].startswith(f"{wire.STALL}: expected {expected}")


@pytest.mark.slow
async def test_a_watched_worker_has_a_new_limit_at_once() -> None:
    """Without a new start: the look after the change judges by it."""
    kennel = Kennel()
    kennel.stalls.take_limits("10")  # a look each half second
    kennel.stalls.begin(4)
    watching = asyncio.create_task(kennel.stalls.watch(Running(), kennel.found.append))
    await asyncio.sleep(2.7)
    kennel.stalls.take_limits(ON)
    async with asyncio.timeout(5):
        await watching
    assert kennel.found == [WorkerStalled(4, 1, 40)]


async def test_a_worker_that_started_without_a_limit_is_watched_at_once() -> None:
    """Its watch waits for the limit, through one that was taken back before it held."""
    kennel = Kennel()
    kennel.stalls.begin(4)
    watching = asyncio.create_task(kennel.stalls.watch(Running(), kennel.found.append))
    await asyncio.sleep(0)
    kennel.stalls.take_limits(ON)
    async with asyncio.timeout(10):
        await watching
    assert [found.epoch for found in kennel.found] == [4]
    assert await kennel.watch(5, 10)


async def test_the_folder_is_there_before_there_is_a_limit(tmp_path: Path) -> None:
    """Without the last epoch's steps, and with whatever else lies there."""
    folder = tmp_path / "progress"
    kennel = Kennel(replace(CONFIG, progress_dir=str(folder)))
    kennel.stalls.begin(1)
    assert folder.stat().st_mode & 0o7777 == 0o1777
    for name in ("rank-0", ".rank-0", "rank-x", "checkpoint"):
        (folder / name).touch()
    kennel.stalls.begin(2)
    assert sorted(path.name for path in folder.iterdir()) == ["checkpoint", "rank-x"]


@pytest.mark.parametrize(
    ("config", "problem", "message"),
    [
        (FOLDER, "expected a guard", "expected a guard"),
        (CONFIG, "", "expected EPOCH_FILE or LINK_FILE on the Pod's emptyDir, or PROGRESS_FILE, saw neither"),
    ],
)
async def test_a_limit_where_nobody_can_watch_is_told(config: AgentConfig, problem: str, message: str) -> None:
    """The job goes on without a watchdog."""
    kennel = Kennel(config, problem)
    kennel.stalls.take_limits(ON)
    assert (kennel.made, kennel.stalls.folder) == ([], "")
    assert [line["message"] for line in kennel.log.of("stall_limits_unused")] == [message]


def limits_seen(*cells: str | None, annotations: dict[str, str] | None = None) -> list[str | None]:
    """Return what is said of the limits in a Table's row with or without our column, and in a whole object."""
    names = (wire.COLUMN_STALL,)[: len(cells)]
    row = table(["train", 1, 0, None, None, "InPlaceRestart", None, None, "uid-1", *cells], 7, (*COLUMNS, *names))
    whole = plain(1, 0)
    whole["metadata"]["annotations"] = annotations or {}
    seen = [JobSetEvents().read_line(line("MODIFIED", obj)) for obj in (row, whole)]
    return [one.stall for one in seen if isinstance(one, Seen)]


async def test_limits_come_with_a_view_whatever_its_form() -> None:
    """A Table's column or the object's annotation; a CRD without the column has none; a long text is cut."""
    assert limits_seen("9", annotations={wire.STALL: "9"}) == ["9"] * 2
    assert limits_seen(annotations={wire.STALL: "start=60"}) == [None, "start=60"]
    assert limits_seen("9" * 300_000)[0] == "9" * 40


async def test_steps_are_seen_without_a_setting(tmp_path: Path) -> None:
    """In a real supervisor: the agent logs the first step, and the next announcement says how far the worker was."""
    async with watched(tmp_path, STEPS, RANK="0", STALL_AFTER_S="") as group:
        await group.said("steps_begun")
        os.kill(main_of(group), signal.SIGKILL)
        await next_epoch(group, 2)
        progress = parse_last_progress(group.server.told(PHASES)[-1])
        assert progress is not None
        assert (progress.step or 0) > 20
        await end(group)
        assert group.logged("worker_stalled") == []


async def test_an_agent_whose_worker_reports_nothing_loads_no_watchdog() -> None:
    """Neither with views that have no limit."""
    program = f"""
import sys
sys.path[:0] = {sys.path!r}
from inplace.agent.progress.stall_watch import StallWatch
from inplace.agent.settings.config import AgentConfig
watch = StallWatch(AgentConfig("ns", "pod", "train"), clock=None, log=None)
watch.take_limits(None)
watch.begin(1)
import json
print(json.dumps(sorted(name for name in sys.modules if "watch" in name or "progress" in name)))
"""
    done = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)  # noqa: ASYNC221
    assert json.loads(done.stdout) == [
        "inplace.agent.progress",
        "inplace.agent.progress.rank_files",
        "inplace.agent.progress.stall_watch",
    ]


async def test_a_stopped_worker_is_found_by_an_annotation(tmp_path: Path) -> None:
    """In a real supervisor without a setting: the worker is told the folder, and the group restarts."""
    async with watched(tmp_path, STEPS, "--grace", "60", RANK="0", limits="1", STALL_AFTER_S="") as group:
        await steps(group, tmp_path)
        os.kill(main_of(group), signal.SIGSTOP)
        assert (await told(group)).epoch == 1
        await next_epoch(group, 2)
        await end(group)
        assert [line["stall_after_s"] for line in group.logged("stall_limits")] == [1.0]


async def test_a_limit_finds_a_worker_that_hangs_already(tmp_path: Path) -> None:
    """It was stopped before anybody set a limit; its files tell how long its steps took."""
    async with watched(tmp_path, STEPS, "--grace", "60", RANK="0", STALL_AFTER_S="") as group:
        await steps(group, tmp_path)
        await asyncio.sleep(0.5)
        os.kill(main_of(group), signal.SIGSTOP)
        began_s = time.monotonic()
        group.limits = "1"
        group.show(1, 0)
        assert (await told(group)).epoch == 1
        assert time.monotonic() - began_s < 4.0, "five times the limit, as if it made its first steps now"
        await next_epoch(group, 2)
        await end(group)


@pytest.mark.slow
async def test_a_standby_worker_is_told_the_folder_before_there_is_a_limit(tmp_path: Path) -> None:
    """It starts beside a worker without a limit; the limit comes with the view that lifts the barrier."""
    worker = """
import inplace
inplace.ready()
note('main')
for step in range(1, 60):
    inplace.progress(step)
    time.sleep(0.02)
time.sleep(3600)
"""
    async with watched(tmp_path, worker, "--standby", RANK="0") as group:
        [ready] = await group.said("standby_ready")
        group.limits = "1"
        os.kill(main_of(group), signal.SIGKILL)
        await next_epoch(group, 2)
        await group.noted("main", 2)
        assert main_of(group) == ready["pid"]
        failure = await told(group)
        assert (failure.epoch, failure.step) == (2, 59)
        await next_epoch(group, 3)
        await end(group)
