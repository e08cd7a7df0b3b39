"""What a dead worker left is gone BEFORE the next epoch is announced; what is not the worker's stays."""

from __future__ import annotations

import ctypes
import os
import secrets
from collections.abc import Iterator
from pathlib import Path

import pytest

from inplace.agent.arguments import ArgumentsError, clean_words
from inplace.agent.clean_paths import CleanPaths, problem_of_mount, problem_of_path
from inplace.agent.shared_memory import NODES_IPC, SharedMemory
from inplace.agent.sysv_ipc import remove_sysv_ipc
from tests.agent.supervisor_rig import IDLE, supervised, until
from tests.agent.test_guard import agent_at, guarded
from tests.agent.test_process_depth import pod

SHM = Path("/dev/shm")
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


def leaves(name: str, then: str) -> str:
    """Return a worker that leaves a file in /dev/shm in each run."""
    return f"open('/dev/shm/{name}-' + os.environ['INPLACE_EPOCH'], 'w').close()\n{then}"


@pytest.fixture
def name() -> Iterator[str]:
    """Give a name in /dev/shm that no other test has."""
    own = f"inplace-test-{secrets.token_hex(8)}"
    yield own
    for path in SHM.glob(f"{own}*"):
        path.unlink(missing_ok=True)


@pytest.mark.asyncio
async def test_a_guard_that_ends_leaves_no_shared_memory_of_its_worker(tmp_path: Path, name: str) -> None:
    """In depth `containers`; what was there before the first worker stays, also for the second guard."""
    with (SHM / f"{name}-before").open("w"):  # open: guards of other tests see it, too
        for epoch in (1, 2):
            async with agent_at(tmp_path / "link") as agent, guarded(tmp_path, leaves(name, "sys.exit(1)")) as group:
                agent.link.lift(epoch)
                assert (await group.finished())[0] == 1
            assert [path.name for path in SHM.glob(f"{name}-*")] == [f"{name}-before"]
    (SHM / f"{name}-before").unlink(missing_ok=True)


@pytest.mark.asyncio
async def test_what_a_killed_guard_left_is_cleaned_by_the_next(tmp_path: Path, name: str) -> None:
    """As after the kernel ended the whole container for its memory."""
    async with agent_at(tmp_path / "link") as agent, guarded(tmp_path, leaves(name, IDLE)) as group:
        agent.link.lift(1)
        await group.noted("main")
        group.child.kill()
        await until(lambda: not group.tree(), "the worker's end")
    async with agent_at(tmp_path / "link") as agent, guarded(tmp_path, IDLE):
        await until(lambda: not (SHM / f"{name}-1").exists(), "the cleaning")


@pytest.mark.asyncio
async def test_a_guard_that_stays_cleans_before_it_says_that_it_waits(tmp_path: Path, name: str) -> None:
    """In depth `process`: the agent announces after that word, and the next worker finds nothing."""
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    worker = f"note('epoch-' + os.environ['INPLACE_EPOCH'], str(os.listdir({str(scratch)!r})))\n"
    worker += f"open({str(scratch / 'lock')!r}, 'w').close()\n" + leaves(name, "sys.exit(1)")
    shared = tmp_path / "shared"
    shared.mkdir()
    async with pod(shared, worker, "--clean", str(scratch)) as group:
        await group.runs(1)
        await group.runs(2)
        for epoch in (1, 2):
            assert await group.guard.noted(f"epoch-{epoch}") == "[]"
        assert not (SHM / f"{name}-1").exists()


@pytest.mark.asyncio
async def test_a_supervisor_cleans_before_it_announces(tmp_path: Path, name: str) -> None:
    """Shared memory by default, a path when asked."""
    lock = tmp_path / "scratch" / "lock"
    lock.parent.mkdir()
    worker = leaves(name, f"open({str(lock)!r}, 'w').close()\nsys.exit(1)")
    async with supervised(tmp_path, worker, "--clean", str(lock), EPOCH_FILE=str(tmp_path / "kept" / "epoch")) as group:
        (tmp_path / "kept").mkdir()
        await group.start()
        assert await group.announced() == 2
        assert (lock.exists(), (SHM / f"{name}-1").exists()) == (False, False)


def test_what_was_there_before_stays(tmp_path: Path) -> None:
    """Also for the next process, which reads the list; and for a worker of another Pod, whose list is another."""
    kept, folder = str(tmp_path / "kept"), tmp_path / "shm"
    folder.mkdir()
    (folder / "before").touch()
    assert SharedMemory(kept, str(folder)).clean() == 0
    (folder / "after").touch()
    assert SharedMemory(kept, str(folder)).clean() == 1
    assert [path.name for path in folder.iterdir()] == ["before"]


def test_a_file_in_use_stays(name: str) -> None:
    """A process that has it open needs it: a standby, or another container in a shared PID namespace."""
    memory = SharedMemory("")
    with (SHM / name).open("w"):
        memory.clean()
        assert (SHM / name).exists()
    memory.clean()
    assert not (SHM / name).exists()


def test_all_of_the_users_shared_memory(tmp_path: Path) -> None:
    """Also what was there before, when that is asked for; folders stay."""
    (tmp_path / "before").touch()
    (tmp_path / "folder").mkdir()
    memory = SharedMemory("", str(tmp_path))
    assert memory.clean() == 0
    assert memory.clean(all_of_user=True) == 1
    assert [path.name for path in tmp_path.iterdir()] == ["folder"]


@pytest.mark.skipif(
    str(Path("/proc/self/ns/ipc").readlink()) != NODES_IPC, reason="needs the machine's own IPC namespace"
)
def test_the_nodes_shared_memory_is_left_alone(tmp_path: Path) -> None:
    """A Pod with hostIPC cannot see who else uses it."""
    memory = SharedMemory("", str(tmp_path), {"KUBERNETES_SERVICE_HOST": "10.0.0.1"})
    (tmp_path / "new").touch()
    assert (memory.clean(), memory.clean(all_of_user=True), (tmp_path / "new").exists()) == (0, 0, True)


def test_a_list_that_cannot_be_read_removes_nothing(tmp_path: Path) -> None:
    """A worker that puts a pipe in its place keeps its files, and blocks nobody."""
    os.mkfifo(tmp_path / "kept")
    (tmp_path / "shm").mkdir()
    memory = SharedMemory(str(tmp_path / "kept"), str(tmp_path / "shm"))
    (tmp_path / "shm" / "new").touch()
    assert memory.clean() == 0


def test_system_v_ipc_that_is_attached_stays() -> None:
    """Another segment of this user is removed."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.shmat.restype = ctypes.c_void_p
    attached, free = (libc.shmget(0, 4096, 0o1600) for _ in range(2))
    libc.shmat(attached, None, 0)
    try:
        assert remove_sysv_ipc() >= 1
        assert libc.shmctl(free, 0, None) == -1
    finally:
        assert libc.shmctl(attached, 0, None) == 0


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
