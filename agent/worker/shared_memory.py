"""
Remove the shared memory that a dead worker left: files in /dev/shm, which outlive a process and a container.

A Pod's /dev/shm belongs to all of its containers. A file counts as the worker's if it came after the Pod's first
worker was about to start, is a regular file of this process's user, and no process holds it open or maps it. What was
there before is kept in a small file in the folder that outlives the containers; if that list cannot be read, nothing is
removed. Nor is anything where `has_own_ipc` says no, nor what a checkpoint library keeps for the next process: a file
whose name says so, or one in a folder. `--clean ipc` also asks for the user's System V objects, see `remove_sysv_ipc`.
On the guard's start path. docs/adr/0081
"""

from __future__ import annotations

import os
from _stat import S_ISREG

from inplace.agent.shared_file import read_shared, write_shared
from inplace.agent.worker.prctl import c_function
from inplace.common.bare.typed import Final, Mapping

FOLDER: Final = "/dev/shm"  # noqa: S108 - that is what is cleaned
FILES_MAX: Final = 10_000  # looked at in one go; the rest waits for the next one
KEPT_BYTES_MAX: Final = 1 << 20
NODES_IPC: Final = "ipc:[4026531839]"  # the kernel's PROC_IPC_INIT_INO
SET_BY_KUBELET: Final = "KUBERNETES_SERVICE_HOST"  # in every container
SYSV_REMOVE: Final = 0  # IPC_RMID
SYSV_OBJECTS_MAX: Final = 10_000  # of a kind, looked at in one go
CHECKPOINTS: Final = ("ckpt", "checkpoint")  # in a name, in any case; DLRover's is RUN_ckpt_shm_RANK
File = tuple[int, str]  # inode and name


def has_own_ipc(env: Mapping[str, str]) -> bool:
    """Say whether /dev/shm and System V IPC belong to this process's Pod.

    On a developer's machine, and in a Pod with hostIPC, other programs of the same user have files there.

    Args:
        env: of this process.
    """
    try:
        namespace = os.readlink("/proc/self/ns/ipc")  # noqa: PTH115
    except OSError:
        namespace = ""  # a sandbox that hides it, such as gVisor's; it has no namespace of the node's
    return SET_BY_KUBELET in env and namespace != NODES_IPC


class SharedMemory:
    """What a worker leaves in /dev/shm.

    Args:
        kept: the path of the list of what was there before the Pod's first worker; "" keeps it in memory.
        folder: where the files are.
    """

    def __init__(self, kept: str, folder: str = FOLDER) -> None:
        self._folder = folder
        self._before: set[File] | None = None  # None: it cannot be told
        try:
            self._before = _parse(read_shared(kept, KEPT_BYTES_MAX)) if kept else set(self._files())
        except FileNotFoundError:
            self._before = set(self._files())
            try:  # noqa: SIM105 - contextlib is dear
                write_shared(kept, "\n".join(f"{inode} {name}" for inode, name in self._before).encode())
            except (OSError, ValueError):
                pass  # the next container takes what is there then for what was there before
        except (OSError, ValueError):
            return

    def clean(self, *, all_of_user: bool = False) -> int:
        """Remove what the worker left, or all files of this user; return how many were removed."""
        before = set[File]() if all_of_user else self._before
        if before is None:
            return 0
        found = [file for file in self._files() if file not in before and (all_of_user or not _is_checkpoint(file[1]))]
        used = _in_use(self._folder) if found else set()
        removed = 0
        for inode, name in found:
            if inode not in used:
                try:
                    os.unlink(f"{self._folder}/{name}")  # noqa: PTH108 - pathlib costs 3 ms
                    removed += 1
                except OSError:
                    continue  # another container's process was quicker
        return removed

    def _files(self) -> list[File]:
        """Return this user's regular files."""
        user, files = os.geteuid(), list[File]()
        try:
            with os.scandir(self._folder) as entries:
                for entry in entries:
                    found = entry.stat(follow_symlinks=False)
                    if S_ISREG(found.st_mode) and found.st_uid == user and "\n" not in entry.name:
                        files.append((found.st_ino, entry.name))
                    if len(files) == FILES_MAX:
                        break
        except OSError:
            return []  # no such folder here, or a file that went meanwhile
        return files


def _is_checkpoint(name: str) -> bool:
    return any(word in name.lower() for word in CHECKPOINTS)


def _parse(content: bytes) -> set[File]:
    lines = (line.partition(" ") for line in content.decode().split("\n") if line)
    return {(int(inode), name) for inode, _, name in lines}


def _in_use(folder: str) -> set[int]:
    """Return the inodes of a folder's files that processes hold open or map, as far as they can be seen."""
    used = set[int]()
    for name in os.listdir("/proc"):  # noqa: PTH208
        if name.isdigit():
            try:
                _add_used(used, f"/proc/{name}", folder)
            except OSError:
                continue  # it ended, or is another user's
    return used


def _add_used(used: set[int], process: str, folder: str) -> None:
    with open(f"{process}/maps", encoding="utf-8", errors="replace") as maps:  # noqa: PTH123
        for line in maps:
            if folder in line:
                used.add(int(line.split()[4]))
    for number in os.listdir(f"{process}/fd"):  # noqa: PTH208
        path = f"{process}/fd/{number}"
        try:
            if os.readlink(path).startswith(folder):  # noqa: PTH115
                used.add(os.stat(path).st_ino)  # noqa: PTH116
        except FileNotFoundError:
            continue


def remove_sysv_ipc() -> int:
    """Remove this user's System V shared memory that no process has attached, semaphores and queues.

    Returns:
        How many were removed.

    Source: shmctl(2), sysvipc(5).
    """
    removed = 0
    for number in _sysv_ids("shm", attached="nattch"):
        removed += c_function("shmctl")(number, SYSV_REMOVE, None) == 0
    for number in _sysv_ids("sem"):
        removed += c_function("semctl")(number, 0, SYSV_REMOVE) == 0
    for number in _sysv_ids("msg"):
        removed += c_function("msgctl")(number, SYSV_REMOVE, None) == 0
    return removed


def _sysv_ids(kind: str, attached: str = "") -> list[int]:
    """Return the ids of this user's System V objects of one kind, by /proc/sysvipc."""
    try:
        with open(f"/proc/sysvipc/{kind}", encoding="ascii") as lines:  # noqa: PTH123
            names, *rows = (line.split() for line in lines)
    except (OSError, ValueError):
        return []  # a kernel without CONFIG_SYSVIPC
    objects = [dict(zip(names, map(int, row), strict=True)) for row in rows[:SYSV_OBJECTS_MAX]]
    user = os.geteuid()
    return [one[f"{kind}id"] for one in objects if one["uid"] == user and not (attached and one[attached])]
