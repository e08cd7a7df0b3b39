"""The watchdog with real workers: a supervisor's, and one below a guard."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from time import monotonic

import pytest

from inplace.common.wire.last_progress import parse_last_progress
from inplace.common.wire.names import EPOCH, PHASES, WORKER_FAILED
from inplace.common.wire.worker_failure import WorkerFailure, parse_failure
from tests.agent.process import COMMAND, environment, finished, process
from tests.agent.scripted_server import (
    Exchange,
    ScriptedServer,
    Step,
    accept_patch,
    jobset,
    refuses,
    silence,
    until_patched,
)
from tests.agent.supervisor_rig import IDLE, Supervised, main_of, running, until
from tests.agent.test_guard import Guarded, guarded

pytestmark = pytest.mark.asyncio

STEPS = """
import inplace
note('main')
step = 0
while True:
    step += 1
    inplace.progress(step)
    time.sleep(0.02)
"""
STALL_S = 1.0


def failures(server: ScriptedServer) -> list[WorkerFailure]:
    """Return what was told, in order."""
    return [parse_failure(text) for text in server.told(WORKER_FAILED)]


@asynccontextmanager
async def watched(
    folder: Path, worker: str, *options: str, limits: str | None = None, **env: str
) -> AsyncIterator[Supervised]:
    """Run a supervisor that watches its worker, which runs."""
    env = {"STALL_AFTER_S": str(STALL_S), "EPOCH_FILE": str(folder / "epoch")} | env
    async with running(folder, worker, *options, limits=limits, **env) as group:
        yield group


async def told(group: Supervised, count: int = 1) -> WorkerFailure:
    """Wait for the PATCH that tells of a stall."""
    await group.server.until(lambda: len(failures(group.server)) >= count)
    return failures(group.server)[-1]


async def next_epoch(group: Supervised, epoch: int) -> None:
    """Wait for the announcement of an epoch, let the group sync at it, and wait for the worker."""
    await group.server.until(lambda: group.server.told(EPOCH)[-1] == str(epoch))
    group.show(epoch, epoch - 1)
    await group.noted("main", epoch)


async def steps(group: Supervised, folder: Path, name: str = "rank-0") -> None:
    """Wait until a rank made more than the first three steps, whose limits are longer."""
    path = folder / "progress" / name
    begun = last_step(path)
    await until(lambda: last_step(path) > begun + 20, "steps")


def last_step(file: Path) -> int:
    """Return the step in a rank's file; 0 while it has none."""
    words = file.read_text().split() if file.exists() else []
    return int(words[2]) if len(words) > 2 and words[2].isdigit() else 0


async def end(group: Supervised) -> None:
    """End the supervisor and its worker, a stopped one too."""
    group.child.terminate()
    with suppress(ProcessLookupError):  # it took the supervisor's SIGTERM first
        os.kill(main_of(group), signal.SIGKILL)
    await group.finished()


async def test_a_stopped_worker_is_told_killed_and_started_again(tmp_path: Path) -> None:
    """Twice: SIGSTOP, one PATCH with rank's step and silence, SIGKILL, the next epoch; SIGTERM would wait its grace."""
    async with watched(tmp_path, STEPS, "--grace", "60", RANK="0") as group:
        for epoch in (1, 2):
            await steps(group, tmp_path)
            os.kill(main_of(group), signal.SIGSTOP)
            failure = await told(group, epoch)
            assert (failure.epoch, failure.code) == (epoch, None)
            assert 1 <= (failure.stalled_s or 0) <= 10
            assert (failure.step or 0) > 20
            await next_epoch(group, epoch + 1)
            progress = parse_last_progress(group.server.told(PHASES)[-1])
            assert progress is not None
            assert (progress.step or 0) >= (failure.step or 0)
            assert STALL_S <= progress.quiet_s <= 10.0
            assert progress.made == (progress.step or 0) - 1
            assert progress.pace_s == pytest.approx(0.02, rel=1.0)  # a sleep of 20 ms on a busy machine
        await end(group)
        assert [line["epoch"] for line in group.logged("steps_begun")][:2] == [1, 2], "once for each epoch"
        assert [line["rank"] for line in group.logged("worker_stalled")] == ["rank-0", "rank-0"]
        assert [line["why"] for line in group.logged("worker_stopping")][:2] == ["it hangs", "it hangs"]
        assert len(failures(group.server)) == 2


@pytest.mark.slow
async def test_a_throttled_telling_puts_the_announcement_off(tmp_path: Path) -> None:
    """The server's Retry-After is for this agent's next PATCH as well, whatever that says."""
    began_s: list[float] = []

    async def throttle(exchange: Exchange) -> None:
        began_s.append(monotonic())
        told = WORKER_FAILED.encode() in exchange.request.body
        await (refuses(429, "TooManyRequests", retry_after="2") if told else accept_patch)(exchange)

    async with watched(tmp_path, STEPS, RANK="0") as group:
        group.server.answer = throttle
        await steps(group, tmp_path)
        os.kill(main_of(group), signal.SIGSTOP)
        await told(group)
        await next_epoch(group, 2)
        assert began_s[-1] - began_s[-2] >= 2.0
        await end(group)
        assert [line["epoch"] for line in group.logged("announcement_put_off")] == [2]


@pytest.mark.slow
async def test_a_busy_worker_is_left_alone(tmp_path: Path) -> None:
    """A checkpoint three times as long as the limit, and an exit that says so: no stall."""
    worker = """
import inplace
note('main')
for step in range(40):
    inplace.progress(step)
    time.sleep(0.02)
with inplace.busy("checkpoint", up_to_s=30):
    time.sleep(3)
inplace.progress(40)
if os.fork() == 0:
    sys.exit(0)
sys.exit(0)
"""
    async with watched(tmp_path, worker) as group:
        assert await group.finished() == 0
        assert failures(group.server) == []
        assert group.logged("worker_stalled") == []


async def test_the_last_epoch_s_files_are_no_progress_and_no_silence(tmp_path: Path) -> None:
    """Old lines, and lines of another epoch that come later: the worker, which says nothing itself, is never judged."""
    folder = tmp_path / "progress"
    folder.mkdir()
    (folder / "rank-0").write_text("v1 1 7 77\n")
    (folder / "0").write_text("1200\n")
    worker = """
note('main')
with open(os.environ['INPLACE_PROGRESS_DIR'] + '/rank-1', 'w') as file:
    file.write('v1 9 7 77\\n')
time.sleep(2.5)
sys.exit(0)
"""
    async with watched(tmp_path, worker, STALL_AFTER_S="0.5") as group:
        assert await group.finished() == 0
        assert failures(group.server) == []
        assert not (folder / "rank-0").exists()
        assert (folder / "0").read_text() == "1200\n"


async def test_garbage_beside_a_rank_hides_no_stall(tmp_path: Path) -> None:
    """Links, pipes, folders, words and 2,000 files: the rank that stops is found."""
    folder = tmp_path / "progress"
    folder.mkdir()
    (folder / "link").symlink_to("/proc/self/mem")
    os.mkfifo(folder / "pipe")
    (folder / "folder").mkdir()
    (folder / "words").write_text("no step " * 1000)
    (folder / "huge").write_text("1" + "0" * 30)
    async with watched(tmp_path, STEPS, RANK="0") as group:
        await steps(group, tmp_path)
        os.kill(main_of(group), signal.SIGSTOP)
        assert (await told(group)).epoch == 1
        await next_epoch(group, 2)
        await end(group)


async def test_a_worker_that_never_begins_is_told(tmp_path: Path) -> None:
    """By the limit of the start alone; nobody knows a step."""
    async with watched(tmp_path, IDLE, STALL_AFTER_S="", START_STALL_AFTER_S="0.5") as group:
        assert (await told(group)).step is None
        await next_epoch(group, 2)
        await end(group)


@pytest.mark.slow
async def test_any_program_s_files_are_progress(tmp_path: Path) -> None:
    """PROGRESS_FILE names them."""
    log = tmp_path / "logs" / "train.log"
    log.parent.mkdir()
    worker = f"""
note('main')
with open({str(log)!r}, 'a') as file:
    for _ in range(30):
        file.write('a step'); file.flush()
        time.sleep(0.05)
time.sleep(60)
"""
    async with watched(tmp_path, worker, STALL_AFTER_S="1", PROGRESS_FILE=f"{log.parent}/*.log") as group:
        assert (await told(group)).epoch == 1


async def test_no_limit_is_no_watchdog(tmp_path: Path) -> None:
    """A worker may be stopped for as long as it likes; a limit that came would find its folder."""
    worker = "note('main', os.environ.get('INPLACE_PROGRESS_DIR', 'none')); time.sleep(0.3); sys.exit(0)"
    async with watched(tmp_path, worker, STALL_AFTER_S="0") as group:
        assert group.notes("main") == [str(tmp_path / "progress")]
        assert await group.finished() == 0
        assert (tmp_path / "progress").is_dir()


@pytest.mark.parametrize(
    ("env", "problem"),
    [
        ({"STALL_AFTER_S": "soon"}, "STALL_AFTER_S: expected seconds from 0.5 to 604800, or 0 for off, saw 'soon'"),
        ({"STALL_AFTER_S": "0.1"}, "STALL_AFTER_S: expected seconds from 0.5"),
        ({"PROGRESS_FILE": "/a/**", "STALL_AFTER_S": "9"}, "PROGRESS_FILE: expected '*' for one name at a time"),
        ({"START_STALL_AFTER_S": "9"}, "START_STALL_AFTER_S: expected EPOCH_FILE or LINK_FILE"),
    ],
)
async def test_settings_that_cannot_be_used_are_refused(tmp_path: Path, env: dict[str, str], problem: str) -> None:
    """Before anything is sent; the message has the variable."""
    async with ScriptedServer(lists=[jobset(0)]) as server:
        command = (*COMMAND, "run", "--", "true")
        async with process(environment(tmp_path, server, **env), *command) as child:
            code, lines = await finished(child)
        assert code == 2
        assert problem in str(lines[0]["message"])
        assert server.requests("PATCH") == []


async def test_a_stopped_worker_whose_group_restarts_ends_at_once(tmp_path: Path) -> None:
    """Before its own agent finds it: it goes on to take SIGTERM, and uses up no grace."""
    async with watched(tmp_path, STEPS, "--grace", "60", RANK="0", STALL_AFTER_S="60") as group:
        os.kill(main_of(group), signal.SIGSTOP)
        group.show(1, 1)
        await next_epoch(group, 2)
        await end(group)
        assert failures(group.server) == []


@asynccontextmanager
async def stopped_below_a_guard(
    folder: Path, *options: str
) -> AsyncIterator[tuple[ScriptedServer, asyncio.subprocess.Process, Guarded, int]]:
    """Run an agent of depth `containers` and a guard, and stop the worker once it made its steps."""
    script: tuple[Step, ...] = (jobset(0), until_patched(), jobset(1, 0), silence)
    async with ScriptedServer(lists=[jobset(0)], watches=[script]) as server:
        files = {"LINK_FILE": str(folder / "link"), "EPOCH_FILE": str(folder / "epoch")}
        env = environment(folder, server, **files, STALL_AFTER_S="1", RESTART_DEPTH="containers")
        async with process(env) as agent, guarded(folder, STEPS, "--grace", "60", *options, RANK="0") as group:
            main = int(await group.noted("main"))
            await until(lambda: last_step(folder / "progress" / "rank-0") > 40, "steps")
            os.kill(main, signal.SIGSTOP)
            yield server, agent, group, main


async def test_a_stopped_worker_below_a_guard_is_told_and_killed(tmp_path: Path) -> None:
    """The agent tells, and exits with X; the guard's SIGTERM ends even a stopped worker at once, and the container."""
    async with stopped_below_a_guard(tmp_path) as (server, agent, group, _):
        code, lines = await finished(agent)
        assert code == 88
        assert (await group.finished())[0] == 143
    (failure,) = failures(server)
    assert (failure.epoch, (failure.step or 0) > 40) == (1, True)
    text, *_ = (tmp_path / "epoch.phases").read_text().split(" ")
    progress = parse_last_progress(text)
    assert progress is not None, "for the next process to announce"
    assert (progress.step or 0) >= (failure.step or 0)
    assert progress.quiet_s >= STALL_S
    events = [line["event"] for line in lines]
    assert events.index("worker_stalled") < events.index("worker_failed") < events.index("restarting_in_place")
    assert next(line for line in lines if line["event"] == "restarting_in_place")["verdict"] == "worker_stalled"
