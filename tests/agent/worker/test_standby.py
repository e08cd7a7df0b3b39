"""A standby as a real process: it gets ready beside the worker, serves one epoch, and never does harm."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from testbed.ports import free_ports
from tests.agent.supervisor_rig import RUN, Supervised, main_of, running, until

pytestmark = pytest.mark.asyncio

FIRST = "os.environ.get('INPLACE_STANDBY', '').startswith('tell')"  # in the worker itself
READY = "import inplace\nnote('imported')\nstart = inplace.ready()\nnote('ready', start.epoch)\n"
STEPS = "for step in range(3): inplace.progress(step)\n"
SCRIPT = READY + STEPS + RUN


async def waiting(group: Supervised, count: int = 1) -> int:
    """Wait until `count` standbys got ready in all; return the newest one's process."""
    pid: int = (await group.said("standby_ready", count))[-1]["pid"]
    return pid


async def restarted(group: Supervised, epoch: int, left: list[int]) -> None:
    """Kill the worker; wait for the announcement, see who is left then, and wait for the next worker."""
    mains = len(group.notes("main"))
    os.kill(main_of(group), signal.SIGKILL)
    assert await group.announced() == epoch
    assert group.tree() == left
    group.show(epoch, epoch - 1)
    await group.noted("main", mains + 1)


async def test_a_standby_gets_ready_beside_the_worker_and_serves_one_epoch(tmp_path: Path) -> None:
    """Each epoch's worker was there before its lift, and learned its epoch by `ready`."""
    async with running(tmp_path, SCRIPT, "--standby") as group:
        for epoch in (2, 3):
            standby = await waiting(group, epoch - 1)
            assert len(group.notes("ready")) == epoch - 1, "expected the standby to wait"
            await restarted(group, epoch, [standby])
            assert main_of(group) == standby
        assert group.notes("ready") == ["1", "2", "3"]
        assert group.epochs() == [1, 2, 3]
        await waiting(group, 3)
        assert await group.terminated() == 143
        assert [line["epoch"] for line in group.logged("standby_released")] == [2, 3]
        assert all(line["rss_mb"] > 1 for line in group.logged("standby_ready"))


@pytest.mark.slow
async def test_without_the_option_nothing_changes(tmp_path: Path) -> None:
    """`ready` returns at once, and no other process is started."""
    async with running(tmp_path, SCRIPT) as group:
        await group.noted("ready")
        await restarted(group, 2, [])
        assert group.notes("ready") == ["1", "2"]
        assert group.notes("imported") == group.notes("main")


@pytest.mark.parametrize(
    "script",
    [
        pytest.param("import inplace\n" + STEPS, id="never"),
        pytest.param(
            "import inplace\nif os.fork() == 0: inplace.ready(); note('child'); linger()\n",
            id="in a child",
            marks=pytest.mark.slow,
        ),
        pytest.param(
            "import subprocess\nsubprocess.Popen([sys.executable, '-c', 'import inplace; inplace.ready()']).wait()\n"
            "note('child')\n",
            id="below a launcher",
            marks=pytest.mark.slow,
        ),
    ],
)
async def test_a_command_that_does_not_call_ready_itself_has_no_standby(tmp_path: Path, script: str) -> None:
    """It could train at once, or be a launcher that meets its peers: it is never started beside the worker."""
    async with running(tmp_path, "note('start')\n" + script + RUN, "--standby") as group:
        if "child" in script:
            await group.noted("child")
        await restarted(group, 2, [])
        assert len(group.notes("start")) == 2


@pytest.mark.slow
@pytest.mark.parametrize(
    ("fault", "exit_codes", "why"),
    [
        pytest.param("import nothing_like_it\n", {1}, "it ended by itself", id="an import fails"),
        pytest.param("os.kill(os.getpid(), 11)\n", {139}, "it ended by itself", id="it crashes"),
        pytest.param("import inplace\n" + STEPS, {70, 137}, "", id="it trains without ready"),
        pytest.param(
            "import inplace\nif os.fork() == 0: inplace.progress(1)\nos.wait()\nlinger()\n",
            {137},
            "it made a step before inplace.ready()",
            id="its child trains without ready",
        ),
        pytest.param(
            "os.close(int(os.environ['INPLACE_STANDBY'].split(':')[1]))\n", {70}, "", id="its socket is closed"
        ),
        pytest.param("if os.fork() == 0: os.setsid(); linger()\nsys.exit(3)\n", {3}, "", id="it leaves a child"),
        pytest.param(
            "import socket\nheld = socket.create_server(('127.0.0.1', int(os.environ['PORT'])))\n",
            {1},
            "it ended by itself",
            id="it opens the worker's port",
        ),
    ],
)
async def test_a_standby_that_fails_is_an_ordinary_start(
    tmp_path: Path, fault: str, exit_codes: set[int], why: str
) -> None:
    """The worker does not notice, and the next epoch's is started at the lift; the log says what was wrong."""
    script = f"if {FIRST}:\n    import socket\n    own = socket.create_server(('127.0.0.1', int(os.environ['PORT'])))\n"
    indented = "".join(f"    {line}\n" for line in fault.splitlines())
    script += f"elif not os.environ.get('INPLACE_EPOCH'):\n{indented}" + SCRIPT
    async with running(tmp_path, script, "--standby", PORT=str(free_ports(1)[0])) as group:
        await group.said("standby_ended")
        await restarted(group, 2, [])
        assert group.notes("ready") == ["1", "2"]
        assert await group.terminated() == 143
        ended = group.logged("standby_ended")[0]
        assert ended["exit_code"] in exit_codes
        assert why in str(ended["message"])


@pytest.mark.slow
async def test_new_code_that_cannot_be_imported_costs_the_standby_alone(tmp_path: Path) -> None:
    """The worker that runs has the old code; once the code is mended, the next start is an ordinary one."""
    code = tmp_path / "code"
    breaks = f"if {FIRST}: open(os.environ['CODE'], 'w').write('import nothing_like_it')\n"
    code.write_text(READY + breaks + STEPS + RUN)
    async with running(tmp_path, "exec(open(os.environ['CODE']).read())", "--standby", CODE=str(code)) as group:
        assert (await group.said("standby_ended"))[0]["exit_code"] == 1
        code.write_text(SCRIPT)
        await restarted(group, 2, [])
        assert group.notes("ready") == ["1", "2"]


@pytest.mark.slow
async def test_children_of_a_standby_that_died_die_while_the_worker_runs(tmp_path: Path) -> None:
    """They are no part of the worker, whose end may be weeks away."""
    script = f"if not {FIRST}:\n    if os.fork() == 0: os.setpgid(0, 0); linger()\n"
    script += "    while not os.path.exists(os.environ['NOTES'] + '/lingering'): time.sleep(0.001)\n    sys.exit(3)\n"
    async with running(tmp_path, script + SCRIPT, "--standby") as group:
        await group.said("standby_ended")
        await until(lambda: group.tree() == [main_of(group)], "the worker alone")


async def test_what_the_worker_left_is_gone_before_the_announcement_and_the_standby_is_not(tmp_path: Path) -> None:
    """Daemons, and children in other sessions: the worker's are killed, and the standby's session stays."""
    leaves = f"""
if {FIRST}:
    for _ in range(5): daemon(linger)
    if os.fork() == 0: os.setsid(); linger()
else:
    if os.fork() == 0: linger()
    if os.fork() == 0:
        if os.fork() == 0: linger()
        os._exit(0)
    os.wait()
"""
    async with running(tmp_path, leaves + SCRIPT, "--standby") as group:
        standby = await waiting(group)
        await group.noted("lingering", 8)
        os.kill(main_of(group), signal.SIGKILL)
        assert await group.announced() == 2
        left = group.tree()
        assert standby in left
        assert {os.getsid(pid) for pid in left} == {standby}
        assert len(left) == 3, "expected the standby, its child and its grandchild"
        group.show(2, 1)
        await group.noted("main", 2)
        os.kill(standby, signal.SIGKILL)
        assert await group.announced() == 3
        assert not set(left) & set(group.tree())


@pytest.mark.slow
async def test_ready_twice_in_threads_and_after_a_fork_is_one_release(tmp_path: Path) -> None:
    """All of them wait, and all of them learn the same epoch."""
    script = """
import inplace, threading
def call(name):
    start = inplace.ready()
    note(name, f"{start.epoch} {os.environ['INPLACE_EPOCH']} {os.environ['INPLACE_RESTART_COUNT']}")
if os.fork() == 0:
    call('forked')
    linger()
other = threading.Thread(target=call, args=('thread',), daemon=True)
other.start()
call('main thread')
call('again')
other.join()
"""
    async with running(tmp_path, script + READY + STEPS + RUN, "--standby") as group:
        await waiting(group)
        os.kill(main_of(group), signal.SIGKILL)
        assert await group.announced() == 2
        group.show(2, 1)
        await group.noted("main", 2)
        for name in ("forked", "thread", "main thread", "again"):
            assert await group.noted(name, 2) == ["1 1 0", "2 2 1"]


@pytest.mark.slow
async def test_a_stopped_standby_goes_on_at_its_release(tmp_path: Path) -> None:
    """Whoever stopped it: the release lets it run."""
    async with running(tmp_path, SCRIPT, "--standby") as group:
        standby = await waiting(group)
        os.kill(standby, signal.SIGSTOP)
        await restarted(group, 2, [standby])


@pytest.mark.slow
async def test_a_standby_ends_with_its_pod(tmp_path: Path) -> None:
    """SIGTERM to the agent, beside a worker that takes its time: no process stays, and the standby never trains."""
    async with running(tmp_path, SCRIPT, "--standby") as group:
        await waiting(group)
        assert await group.terminated() == 143
        assert group.notes("ready") == ["1"]


@pytest.mark.slow
async def test_a_worker_that_succeeds_takes_its_standby_along(tmp_path: Path) -> None:
    """The Pod completes; nobody waits for a lift that will not come."""
    script = READY + STEPS + "note('main')\nsignal.signal(signal.SIGUSR1, lambda *_: sys.exit(0))\nsignal.pause()\n"
    async with running(tmp_path, script, "--standby") as group:
        await waiting(group)
        os.kill(main_of(group), signal.SIGUSR1)
        assert await group.finished() == 0


@pytest.mark.slow
async def test_a_standby_does_not_touch_the_worker_s_progress_file(tmp_path: Path) -> None:
    """A busy phase before `ready` is not written; after the release the folder is the worker's."""
    script = "import inplace\nwith inplace.busy('import', up_to_s=60): note('imported')\nstart = inplace.ready()\n"
    script += "note('ready', start.epoch)\n" + STEPS + RUN
    folder = tmp_path / "pod" / "progress"
    (tmp_path / "pod").mkdir()
    file = str(tmp_path / "pod" / "epoch")
    async with running(tmp_path, script, "--standby", EPOCH_FILE=file, START_STALL_AFTER_S="100", RANK="0") as group:
        standby, worker = await waiting(group), main_of(group)
        assert (folder / "rank-0").read_text().split()[:4] == ["v1", "1", "2", str(worker)]
        await restarted(group, 2, [standby])
        await until(lambda: (folder / "rank-0").read_text().split()[:3] == ["v1", "2", "2"], "the new worker's steps")
