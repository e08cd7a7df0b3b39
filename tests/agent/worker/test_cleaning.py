"""What a dead worker left is gone BEFORE the next epoch is announced; what is not the worker's stays."""

from __future__ import annotations

import ctypes
import mmap
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from inplace.agent.settings.arguments import ArgumentsError, clean_words
from inplace.agent.settings.paths import problem_of_path
from inplace.agent.worker.clean_paths import CleanPaths, problem_of_mount
from inplace.agent.worker.cleaning import NOT_OURS, Cleaning
from inplace.agent.worker.shared_memory import NODES_IPC, SharedMemory
from tests.agent.process import ROOT
from tests.agent.supervisor_rig import IDLE, supervised, until
from tests.agent.test_guard import agent_at, guarded
from tests.agent.test_process_depth import pod

MOUNTS = """\
1 0 0:1 / / rw - overlay overlay rw
2 1 0:2 / /dev/shm rw - tmpfs shm rw
3 1 8:1 /var/lib/kubelet/pods/u/volumes/kubernetes.io~empty-dir/scratch /scratch rw - ext4 /dev/sda1 rw
4 1 8:1 /srv/models /models rw - ext4 /dev/sda1 rw
5 1 0:5 / /checkpoints rw - nfs4 server:/x rw
6 1 0:6 /k8s /node-run rw - tmpfs tmpfs rw
7 3 8:1 /srv/models /scratch/models rw - ext4 /dev/sda1 rw
8 1 8:1 /var/lib/kubelet/pods/u/volumes/kubernetes.io~empty-dir/b /with\\040blank rw - ext4 /dev/sda1 rw
"""


# A Pod has its own IPC namespace and /dev/shm; the folder that is mounted there outlives its containers.
POD = {"KUBERNETES_SERVICE_HOST": "10.0.0.1"}
STARTER = ("unshare", "--mount", "--ipc", "sh", "-c", 'mount --bind "$0" /dev/shm && exec "$@"')
makes_namespaces = pytest.mark.skipif(os.geteuid() != 0, reason="needs root, as making namespaces does")
outside_namespaces = pytest.mark.skipif(
    str(Path("/proc/self/ns/ipc").readlink()) != NODES_IPC, reason="needs the machine's own IPC namespace"
)


def leaves(folder: Path, then: str) -> str:
    """Return a worker that leaves a file in a folder in each run."""
    return f"open({str(folder)!r} + '/of-' + os.environ['INPLACE_EPOCH'], 'w').close()\n{then}"


def names(folder: Path) -> list[str]:
    """Return what is in a folder."""
    return sorted(path.name for path in folder.iterdir())


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Give an empty folder for what the workers leave."""
    made = tmp_path / "left"
    made.mkdir()
    return made


@pytest.fixture
def shared(tmp_path: Path) -> Path:
    """Give the folder that agent and guard share, which nobody may clean."""
    made = tmp_path / "shared"
    made.mkdir()
    return made


@makes_namespaces
@pytest.mark.asyncio
async def test_a_guard_that_ends_leaves_no_shared_memory_of_its_worker(shared: Path, folder: Path) -> None:
    """In depth `containers`; what was there before the first worker stays, also for the second guard."""
    (folder / "before").touch()
    worker = leaves(Path("/dev/shm"), "sys.exit(1)")
    for epoch in (1, 2):
        async with (
            agent_at(shared / "link") as agent,
            guarded(shared, worker, starter=(*STARTER, str(folder)), **POD) as group,
        ):
            agent.lift(epoch)
            assert (await group.finished())[0] == 1
        assert names(folder) == ["before"]


KEPT = [
    "ckpt_shm_0",  # DLRover 0.6.1: dlrover/python/elastic_agent/torch/ckpt_saver.py, CheckpointSharedObjPrefix
    "train-run-1_ckpt_shm_7",  # the same below torchrun with a run id
    "Checkpoint-0",
]
LEAKED = ["psm_1a2b3c4d", "torch_4711_123_0", "sem.mp-x8a_0k2f", "nccl-AbCdEf", "weights", "of-1"]


def test_what_a_checkpoint_library_keeps_survives(folder: Path) -> None:
    """By name (DLRover), or in a folder (ML Flashpoint 0.0.10 below /dev/shm); what was leaked does not."""
    memory = SharedMemory("", str(folder))
    for name in (*KEPT, *LEAKED):
        (folder / name).touch()
    flash = folder / "mlf-jobs" / "job-145" / "step-100_ckpt"
    flash.mkdir(parents=True)
    (flash / "buffer_0_1.dist").touch()
    assert memory.clean() == len(LEAKED)
    assert names(folder) == sorted([*KEPT, "mlf-jobs"])
    assert names(flash) == ["buffer_0_1.dist"]
    assert memory.clean(all_of_user=True) == len(KEPT), "--clean ipc is the user's word"


@pytest.mark.asyncio
async def test_what_a_killed_guard_left_is_cleaned_by_the_next(shared: Path, folder: Path) -> None:
    """As after the kernel ended the whole container for its memory."""
    options = ("--clean", str(folder))
    async with agent_at(shared / "link") as agent, guarded(shared, leaves(folder, IDLE), *options) as group:
        agent.lift(1)
        await group.noted("main")
        group.child.kill()
        await until(lambda: not group.tree(), "the worker's end")
    assert names(folder) == ["of-1"]
    async with agent_at(shared / "link") as agent, guarded(shared, IDLE, *options):
        await until(lambda: not names(folder), "the cleaning")


@pytest.mark.asyncio
async def test_a_guard_that_stays_cleans_before_it_says_that_it_waits(shared: Path, folder: Path) -> None:
    """In depth `process`: the agent announces after that word, and the next worker finds nothing."""
    worker = f"note('epoch-' + os.environ['INPLACE_EPOCH'], str(os.listdir({str(folder)!r})))\n"
    worker += leaves(folder, "sys.exit(1)")
    async with pod(shared, worker, "--clean", str(folder)) as group:
        await group.runs(1)
        await group.runs(2)
        for epoch in (1, 2):
            assert await group.guard.noted(f"epoch-{epoch}") == "[]"


@pytest.mark.asyncio
async def test_a_supervisor_cleans_before_it_announces(tmp_path: Path, folder: Path) -> None:
    """What it was asked to clean is gone by then."""
    kept = tmp_path / "kept"
    kept.mkdir()
    worker = leaves(folder, "sys.exit(1)")
    async with supervised(tmp_path, worker, "--clean", str(folder), EPOCH_FILE=str(kept / "epoch")) as group:
        await group.start()
        assert await group.announced() == 2
        assert names(folder) == []


@outside_namespaces
@pytest.mark.parametrize("env", [{}, POD], ids=["a developer's machine", "hostIPC"])
def test_the_machines_shared_memory_is_left_alone(tmp_path: Path, env: dict[str, str]) -> None:
    """Neither by default nor when all of it is asked for, which is told; a file of this test is gone with its test."""
    attached = ctypes.CDLL(None).shmget(0, 4096, 0o1600)
    with tempfile.NamedTemporaryFile(dir="/dev/shm") as file:
        cleaning = Cleaning(("ipc",), str(tmp_path / "notes"), str(tmp_path), env)
        cleaning.begin()
        assert (cleaning.clean(), Path(file.name).exists()) == ([NOT_OURS], True)
    assert ctypes.CDLL(None).shmctl(attached, 0, None) == 0


def test_what_was_there_before_stays(tmp_path: Path) -> None:
    """Also for the next process, which reads the list; and for a worker of another Pod, whose list is another."""
    kept, folder = str(tmp_path / "kept"), tmp_path / "shm"
    folder.mkdir()
    (folder / "before").touch()
    assert SharedMemory(kept, str(folder)).clean() == 0
    (folder / "after").touch()
    assert SharedMemory(kept, str(folder)).clean() == 1
    assert [path.name for path in folder.iterdir()] == ["before"]


def test_a_file_in_use_stays(tmp_path: Path) -> None:
    """A process that has it open or maps it needs it: a standby, or another container in a shared PID namespace."""
    memory = SharedMemory("", str(tmp_path))
    (tmp_path / "mapped").write_bytes(b"x")
    with (tmp_path / "open").open("w"):
        with (tmp_path / "mapped").open("r+b") as file:
            pages = mmap.mmap(file.fileno(), 1)
        assert memory.clean() == 0
    pages.close()
    assert memory.clean() == 2


def test_all_of_the_users_shared_memory(tmp_path: Path) -> None:
    """Also what was there before, when that is asked for; folders stay."""
    (tmp_path / "before").touch()
    (tmp_path / "folder").mkdir()
    memory = SharedMemory("", str(tmp_path))
    assert memory.clean() == 0
    assert memory.clean(all_of_user=True) == 1
    assert [path.name for path in tmp_path.iterdir()] == ["folder"]


def test_a_list_that_cannot_be_read_removes_nothing(tmp_path: Path) -> None:
    """A worker that puts a pipe in its place keeps its files, and blocks nobody."""
    os.mkfifo(tmp_path / "kept")
    (tmp_path / "shm").mkdir()
    memory = SharedMemory(str(tmp_path / "kept"), str(tmp_path / "shm"))
    (tmp_path / "shm" / "new").touch()
    assert memory.clean() == 0


@makes_namespaces
def test_system_v_ipc_that_is_attached_stays() -> None:
    """Another segment of this user is removed."""
    program = """
import ctypes
from inplace.agent.worker.shared_memory import remove_sysv_ipc
libc = ctypes.CDLL(None)
libc.shmat.restype = ctypes.c_void_p
attached, free = (libc.shmget(0, 4096, 0o1600) for _ in range(2))
libc.shmat(attached, None, 0)
print(remove_sysv_ipc(), libc.shmctl(free, 0, None), libc.shmctl(attached, 0, None))
"""
    command = ("unshare", "--ipc", sys.executable, "-c", program)
    done = subprocess.run(command, env={"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT)}, capture_output=True)
    assert done.stdout.split() == [b"1", b"-1", b"0"], done.stderr.decode()


@pytest.mark.parametrize(
    "path",
    (
        "/ tmp /tmp/../etc //tmp /tmp/ /etc/passwd /proc/1 /sys /usr/lib/x /dev /dev/sda /var /run /var/run/inplace "
        "/var/run/inplace/epoch /var/run/secrets/x /home /x\0y /" + "x" * 2000
    ).split(" "),
)
def test_paths_that_nobody_cleans(path: str) -> None:
    """Refused by their text alone, by guard, supervisor, inject and lint."""
    assert problem_of_path(path).startswith("expected")
    with pytest.raises(ArgumentsError, match=r"--clean: expected"):
        clean_words("--clean", path)


@pytest.mark.parametrize(
    ("path", "belongs"),
    [
        *((path, True) for path in ("/tmp/x", "/dev/shm/x", "/scratch/x", "/with blank/x")),
        *((path, False) for path in ("/models/x", "/checkpoints", "/checkpoints/x", "/node-run/x")),
        *((path, False) for path in ("/scratch/models/x", "/shared", "/shared/link")),
    ],
)
def test_only_the_containers_own_is_cleaned(tmp_path: Path, path: str, belongs: bool) -> None:
    """Its file system, tmpfs and emptyDirs; no hostPath, claim or folder of the node, and not the link's folder."""
    (tmp_path / "mountinfo").write_text(MOUNTS)
    assert (problem_of_mount(path, "/shared", str(tmp_path / "mountinfo")) == "") is belongs


def test_no_link_is_followed_and_no_mount_entered(tmp_path: Path) -> None:
    """Not as the path, not on its way, not below it; what can be removed is."""
    kept = tmp_path / "kept"
    kept.mkdir()
    (kept / "file").touch()
    scratch = tmp_path / "scratch"
    (scratch / "below").mkdir(parents=True)
    (scratch / "below" / "file").touch()
    (scratch / "below" / "link").symlink_to(kept)
    (scratch / "mount").mkdir()
    (scratch / "mount" / "file").touch()
    (tmp_path / "link").symlink_to(kept)
    mounts = tmp_path / "mountinfo"
    mounts.write_text(f"1 0 0:1 / / rw - overlay o rw\n2 1 8:1 /srv {scratch}/mount rw - ext4 d rw\n")
    paths = (str(tmp_path / "link"), str(tmp_path / "link" / "file"), str(scratch), str(tmp_path / "none"))
    problems = CleanPaths(paths, "", str(mounts)).clean()
    assert ["saw a link" in problems[0], "cannot clean" in problems[1], len(problems)] == [True, True, 2]
    assert (kept / "file").exists()
    assert [path.name for path in scratch.iterdir()] == ["mount"]
    assert (scratch / "mount" / "file").exists()


@pytest.mark.asyncio
async def test_a_path_that_is_refused_ends_the_guard_with_words(tmp_path: Path) -> None:
    """BEFORE a worker starts: code 2."""
    for path in ("/", f"{tmp_path}/link"):
        async with guarded(tmp_path, IDLE, "--clean", path) as group:
            code, said = await group.finished()
            assert (code, "expected" in said) == (2, True)
