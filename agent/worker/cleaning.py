"""
Clean what outlives a worker, BEFORE its Pod announces the next epoch: its guard calls it.

By default the files that the worker left in /dev/shm (`agent.worker.shared_memory`); what `--clean` names beside it.
Paths are cleaned only after a worker ran: what init containers put there for the first one is not touched. A mark
where files outlive the containers says so to a guard whose predecessor was killed. On the guard's start path:
the rest is loaded where it is asked for. docs/adr/0081
"""

from __future__ import annotations

import os

from inplace.agent.shared_file import write_shared
from inplace.agent.worker.shared_memory import SharedMemory, has_own_ipc, remove_sysv_ipc
from inplace.common.bare.typed import TYPE_CHECKING, Final, Mapping

if TYPE_CHECKING:
    from inplace.agent.worker.clean_paths import CleanPaths

IPC: Final = "ipc"  # all POSIX shared memory of the user, and System V IPC
OFF: Final = "off"  # no shared memory
NOT_OURS: Final = "--clean ipc: expected shared memory of a Pod's own, saw the machine's: nothing of it is removed"


class Cleaning:
    """What is cleaned after each worker.

    Args:
        words: of `--clean`: paths, IPC, OFF.
        notes: how the names of its files begin, in a folder that outlives the containers; "" for none.
        kept: the folder of agent and guard, which is never cleaned; "" for none.
        env: of this process.
        refused: why some path does not belong to this container, a sentence for each.
    """

    def __init__(self, words: tuple[str, ...], notes: str, kept: str, env: Mapping[str, str]) -> None:
        own = f"{notes}.{os.geteuid()}" if notes else ""  # containers of other users have files of their own
        own_ipc = has_own_ipc(env)
        self._all_ipc = IPC in words and own_ipc
        self._not_ours = IPC in words and not own_ipc
        self._memory = SharedMemory(f"{own}.shm" if own else "") if OFF not in words and own_ipc else None
        self._paths: CleanPaths | None = None
        self.refused: list[str] = []
        paths = tuple(word for word in words if word not in (IPC, OFF))
        if paths:
            from inplace.agent.worker.clean_paths import CleanPaths, problem_of_mount

            self._paths = CleanPaths(paths, kept)
            problems = ((path, problem_of_mount(path, kept)) for path in paths)
            self.refused = [f"--clean {path}: {problem}" for path, problem in problems if problem]
        self._mark = f"{own}.ran" if own and paths else ""
        self._has_run = bool(self._mark) and os.path.lexists(self._mark)

    def begin(self) -> None:
        """Take note that a worker starts."""
        self._has_run = True
        if self._mark:
            try:  # noqa: SIM105 - contextlib is dear
                write_shared(self._mark, b"")
            except OSError:
                pass  # then the paths are cleaned only while this process lives

    def clean(self) -> list[str]:
        """Clean; return what a person should know: what went wrong, and how much shared memory was removed."""
        said = self._paths.clean() if self._paths is not None and self._has_run else []
        removed = self._memory.clean(all_of_user=self._all_ipc and self._has_run) if self._memory is not None else 0
        if self._all_ipc and self._has_run:
            removed += remove_sysv_ipc()
        if self._not_ours and self._has_run:
            said.append(NOT_OURS)
        if removed:
            said.append(f"removed {removed} pieces of shared memory that the last worker left")
        self._has_run = False
        if self._mark:
            try:  # noqa: SIM105
                os.unlink(self._mark)  # noqa: PTH108 - pathlib costs 3 ms
            except OSError:
                pass  # there was no worker
        return said
