"""A supervisor lets its worker save before a planned stop: SIGTERM of a drain, or a request in the JobSet's status."""

from __future__ import annotations

import asyncio
import io
import os
import signal
from pathlib import Path

import pytest

from inplace.agent.report.log import LazyLog
from inplace.agent.settings.config import AgentConfig, ConfigError
from inplace.agent.worker.save_requests import SaveRequests
from tests.agent.supervisor_rig import running, through_the_barrier
from tests.agent.test_guard import working
from tests.agent.test_process_depth import pod

SAVES = """
import inplace
note("main")
while not inplace.save_requested(): time.sleep(0.01)
note("saved")
sys.exit(75)
"""
DEAF = """
signal.signal(signal.SIGTERM, lambda *_: (note("told"), sys.exit(0)))
note("main")
while True: time.sleep(1)
"""


@pytest.mark.asyncio
async def test_a_drained_worker_saves_and_is_not_told_to_end(tmp_path: Path) -> None:
    """SIGTERM waits for the worker, which ends by itself; nothing is announced, and the Pod ends as it would have."""
    async with running(tmp_path, SAVES, SAVE_WITHIN_S="60", EPOCH_FILE=f"{tmp_path}/epoch") as group:
        group.child.terminate()
        await group.noted("saved")
        assert await group.finished() == 143
        assert group.epochs() == [1]
        assert group.logged("worker_exited")[0]["exit_code"] == 75


@pytest.mark.slow
@pytest.mark.asyncio
@pytest.mark.parametrize(("within_s", "signals"), [("0.2", 1), ("60", 2)], ids=["its time is over", "told twice"])
async def test_a_worker_that_never_looks_is_told_to_end(tmp_path: Path, within_s: str, signals: int) -> None:
    """SIGTERM reaches it after the time to save, or at once when the supervisor is told a second time."""
    async with running(tmp_path, DEAF, SAVE_WITHIN_S=within_s, EPOCH_FILE=f"{tmp_path}/epoch") as group:
        for number in range(signals):
            group.child.send_signal(signal.SIGTERM)
            if number == 0:
                await group.said("save_requested")
        await group.noted("told")
        assert await group.finished() == 143


@pytest.mark.slow
@pytest.mark.asyncio
@pytest.mark.parametrize(("code", "left_with"), [(0, 143), (42, 42), (1, 143)])
async def test_a_worker_that_ends_in_its_time_to_save(tmp_path: Path, code: int, left_with: int) -> None:
    """A worker that ends for good says so as ever; after any other code, also 0, the Pod ends by its signal."""
    worker = SAVES.replace("sys.exit(75)", f"sys.exit({code})")
    file = f"{tmp_path}/epoch"
    async with running(tmp_path, worker, "--fail-on", "42", SAVE_WITHIN_S="60", EPOCH_FILE=file) as group:
        assert await group.terminated() == left_with
        assert group.epochs() == [1]


@pytest.mark.slow
@pytest.mark.asyncio
async def test_a_group_restart_in_the_time_to_save_ends_it(tmp_path: Path) -> None:
    """Another worker died: this one is told to end at once, and the Pod ends without another epoch."""
    async with running(tmp_path, DEAF, SAVE_WITHIN_S="60", EPOCH_FILE=f"{tmp_path}/epoch") as group:
        group.child.terminate()
        await group.said("save_requested")
        group.show(1, 1)
        await group.noted("told")
        assert await group.finished() == 143
        assert group.epochs() == [1]


@pytest.mark.slow
@pytest.mark.asyncio
async def test_a_request_of_another_epoch_changes_nothing(tmp_path: Path) -> None:
    """The status goes on to say an old epoch; a worker that a drain asks, and that looks later, is still asked."""
    worker = SAVES.replace("import inplace", "import inplace\nwhile not os.path.exists('go'): time.sleep(0.01)", 1)
    worker = "note('main')\nos.chdir(os.environ['NOTES'])\n" + worker.replace('note("main")\n', "")
    async with running(tmp_path, worker, SAVE_WITHIN_S="60", EPOCH_FILE=f"{tmp_path}/epoch") as group:
        group.child.terminate()
        await group.said("save_requested")
        group.saving = 7
        group.show(1, 0)
        group.show(1, 0)
        await asyncio.sleep(0.3)  # the views are taken; there is nothing to see of that
        (tmp_path / "notes" / "go").touch()
        await group.noted("saved")
        assert await group.finished() == 143


@pytest.mark.asyncio
async def test_a_request_in_the_status_reaches_the_worker_of_that_epoch(tmp_path: Path) -> None:
    """The first Pod reads it in whole objects; its worker ends, and the next one is asked by its own drain alone."""
    async with running(tmp_path, SAVES, SAVE_WITHIN_S="60", EPOCH_FILE=f"{tmp_path}/epoch") as group:
        group.saving = 1
        group.show(1, 0)
        await group.noted("saved")
        await through_the_barrier(group, 2)
        await group.noted("main", 2)
        group.show(2, 1)
        assert await group.terminated() == 143
        assert len(group.notes("saved")) == 2
        assert [line["epoch"] for line in group.logged("save_requested")] == [1, 2]


@pytest.mark.asyncio
@pytest.mark.parametrize(("exit_code", "pods"), [(75, 75), (0, 143)])
async def test_a_guarded_worker_saves_before_it_is_told_to_end(tmp_path: Path, exit_code: int, pods: int) -> None:
    """SIGTERM to the guard waits for it; no death is told, nor a completion, so that its Job replaces the Pod."""
    worker = SAVES.replace("sys.exit(75)", f"sys.exit({exit_code})")
    async with working(tmp_path, worker, SAVE_WITHIN_S="60") as (agent, group):
        group.child.terminate()
        code, said = await group.finished()
        assert (code, agent.deaths) == (pods, []), said
        assert "the worker has 60 s to save" in said


@pytest.mark.slow
@pytest.mark.asyncio
async def test_a_guard_that_stays_ends_with_a_worker_that_saved(tmp_path: Path) -> None:
    """In depth `process` it would wait for another lift; after SIGTERM it leaves."""
    worker = SAVES.replace('note("main")', 'note("epoch-" + os.environ["INPLACE_EPOCH"])')
    async with pod(tmp_path, worker, env={"SAVE_WITHIN_S": "60"}) as group:
        await group.runs(1)
        group.guard.child.terminate()
        assert (await group.guard.finished())[0] == 75


def test_a_file_of_a_stranger_is_replaced_and_not_followed(tmp_path: Path) -> None:
    """A link in the worker's folder does not lead the agent's write elsewhere; a folder in its place is told."""
    victim = tmp_path / "token"
    victim.write_text("secret")
    (tmp_path / "save").symlink_to(victim)
    (tmp_path / "save.new").symlink_to(victim)
    assert saves_at(f"{tmp_path}/save").write(3) == ""
    assert (victim.read_text(), (tmp_path / "save").read_text()) == ("secret", "3\n")
    (tmp_path / "folder").mkdir()
    assert "cannot write" in saves_at(f"{tmp_path}/folder").write(3)
    assert "cannot write" in saves_at(f"{tmp_path}/gone/save").write(3)


def test_the_file_can_be_read_by_another_user(tmp_path: Path) -> None:
    """Whatever the umask of the agent is."""
    before = os.umask(0o077)
    try:
        assert saves_at(f"{tmp_path}/save").write(3) == ""
    finally:
        os.umask(before)
    assert (tmp_path / "save").stat().st_mode & 0o777 == 0o644


def test_each_epoch_is_asked_once(tmp_path: Path) -> None:
    """A worker that could not be asked may be asked again."""
    requests = saves_at(f"{tmp_path}/folder/save")
    assert not requests.ask(3)
    (tmp_path / "folder").mkdir()
    assert requests.ask(3)
    Path(requests.path).unlink()
    assert requests.ask(3)
    assert not Path(requests.path).exists()
    assert requests.ask(4)
    assert Path(requests.path).read_text() == "4\n"


def saves_at(path: str, within_s: float = 60.0) -> SaveRequests:
    """Return the requests of a worker's parent."""
    return SaveRequests(path, within_s, LazyLog("json", "info", io.StringIO()))


def test_one_sigterm_is_held_back(tmp_path: Path) -> None:
    """The second one ends the time, and so does whoever lets it go; that is told once."""
    saves = saves_at(f"{tmp_path}/save", 60.0)
    assert saves.hold(signal.SIGTERM, 3, 100.0)
    assert (saves.by_s, saves.held) == (160.0, signal.SIGTERM)
    assert not saves.hold(signal.SIGTERM, 3, 101.0)
    assert (saves.by_s, saves.let_go()) == (None, False)
    assert saves.hold(signal.SIGUSR1, 3, 102.0)
    assert (saves.let_go(), saves.let_go(), saves.held) == (True, False, signal.SIGUSR1)
    assert saves.hold(signal.SIGTERM, 3, 103.0)
    assert not saves.hold(signal.SIGINT, 3, 104.0)
    assert not saves.let_go()


@pytest.mark.parametrize(
    ("number", "epoch", "folder"),
    [(signal.SIGINT, 3, ""), (signal.SIGTERM, 0, ""), (signal.SIGTERM, 3, "gone/")],
    ids=["a person's signal", "nothing runs", "it cannot be asked"],
)
def test_nothing_else_is_held_back(tmp_path: Path, number: int, epoch: int, folder: str) -> None:
    """A worker that cannot know that it should save is told to end at once."""
    saves = saves_at(f"{tmp_path}/{folder}save", 60.0)
    assert not saves.hold(number, epoch, 100.0)
    assert saves.by_s is None
    assert not (tmp_path / "save").exists()


NAMES = {"NAMESPACE": "default", "POD_NAME": "train-w-0-0", "JOBSET_NAME": "train", "EPOCH_FILE": "/run/inplace/epoch"}


@pytest.mark.parametrize("text", ["-1", "3601", "nan", "many"])
def test_a_time_to_save_that_is_none_is_refused(text: str) -> None:
    """The agent says what it expects."""
    with pytest.raises(ConfigError, match="SAVE_WITHIN_S: expected seconds from 0 to 3600"):
        AgentConfig.from_env(NAMES | {"SAVE_WITHIN_S": text})


def test_a_worker_that_could_not_see_the_file_is_refused() -> None:
    """The file lies beside EPOCH_FILE or LINK_FILE."""
    with pytest.raises(ConfigError, match="SAVE_WITHIN_S: expected EPOCH_FILE or LINK_FILE"):
        AgentConfig.from_env({**NAMES, "EPOCH_FILE": "", "SAVE_WITHIN_S": "60"})


@pytest.mark.parametrize(
    ("env", "is_table"),
    [
        ({}, False),
        ({"JOB_COMPLETION_INDEX": "0", "JOB_INDEX": "0"}, False),
        ({"JOB_COMPLETION_INDEX": "1"}, True),
        ({"JOB_COMPLETION_INDEX": "0", "JOB_INDEX": "2"}, True),
    ],
)
def test_only_a_first_pod_reads_whole_objects(env: dict[str, str], *, is_table: bool) -> None:
    """Where nobody wants to save, and in all other Pods, nothing changes on the wire."""
    assert AgentConfig.from_env(NAMES | env).prefer_table
    config = AgentConfig.from_env(NAMES | env | {"SAVE_WITHIN_S": "60"})
    assert config.prefer_table is is_table
    assert config.save_file == "/run/inplace/progress/.save"
