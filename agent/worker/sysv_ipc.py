"""Remove the System V shared memory, semaphores and queues of this user (`--clean ipc`); shmctl(2), sysvipc(5)."""

from __future__ import annotations

import os

from inplace.agent.worker.prctl import c_function
from inplace.common.bare.typed import Final

_REMOVE: Final = 0  # IPC_RMID
_OBJECTS_MAX: Final = 10_000


def remove_sysv_ipc() -> int:
    """Remove this user's objects that no process has attached; return how many were removed."""
    removed = 0
    for number in _own("shm", attached="nattch"):
        removed += c_function("shmctl")(number, _REMOVE, None) == 0
    for number in _own("sem"):
        removed += c_function("semctl")(number, 0, _REMOVE) == 0
    for number in _own("msg"):
        removed += c_function("msgctl")(number, _REMOVE, None) == 0
    return removed


def _own(kind: str, attached: str = "") -> list[int]:
    """Return the ids of this user's objects, by /proc/sysvipc."""
    try:
        with open(f"/proc/sysvipc/{kind}", encoding="ascii") as lines:  # noqa: PTH123
            names, *rows = (line.split() for line in lines)
    except (OSError, ValueError):
        return []  # a kernel without CONFIG_SYSVIPC
    objects = [dict(zip(names, map(int, row), strict=True)) for row in rows[:_OBJECTS_MAX]]
    user = os.geteuid()
    return [one[f"{kind}id"] for one in objects if one["uid"] == user and not (attached and one[attached])]
