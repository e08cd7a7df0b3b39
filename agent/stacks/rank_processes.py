"""
Find the processes that are the ranks of a worker, in its tree.

A process is known by what its launcher gave it: RANK, LOCAL_RANK or JAX_PROCESS_ID. One that answers questions
(`inplace/rank_stacks.py`) is preferred to its shell and to its children of the same name. Without any name the tree is
one rank. Reading /proc/PID/environ can hang with the process, so a thread does it.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable, Mapping
from contextlib import suppress
from signal import SIGURG
from typing import Final, NamedTuple

from inplace.agent.progress.rank_files import first_names, is_rank_name, open_folder, read_start
from inplace.agent.worker.process_tree import descendants
from inplace.common.wire.progress import LINE_BYTES_MAX, parse_progress

PROCESSES_MAX: Final = 1024  # of the tree that are looked at
RANKS_MAX: Final = 64  # as many as the watchdog watches
DESCRIPTORS_MAX: Final = 65_536
ENVIRON_BYTES_MAX: Final = 1 << 20
ENVIRON_S_MAX: Final = 0.5  # for all processes together
_NAMES: Final = (("RANK", "rank"), ("LOCAL_RANK", "local"), ("JAX_PROCESS_ID", "jax"))  # as inplace/rank_file.py
_FILE: Final = "/memfd:inplace-stacks-"  # and the process's id


class RankProcess(NamedTuple):
    """One rank.

    Args:
        name: such as rank-3, as its progress file is called; "" if it has none.
        answers: the descriptor of its file for answers, None if it cannot be asked.
        step: its last one, None if it told none.
    """

    pid: int
    name: str
    answers: int | None
    step: int | None


class _Process(NamedTuple):
    pid: int
    parent: int
    name: str
    answers: int | None
    likelihood: tuple[bool, int]  # of being the one that trains: a Python, and how many threads it has


def rank_processes(main: int, progress_dir: str) -> list[RankProcess]:
    """Return the ranks below a worker's main process, itself included; at most RANKS_MAX.

    Args:
        main: its process id.
        progress_dir: the folder of their progress files, "" for none.
    """
    pids = [main, *descendants(main)][:PROCESSES_MAX]
    told = _progress(progress_dir)
    names = _names_of(pids)
    processes = [found for pid in pids if (found := _process(pid, told, names)) is not None]
    chosen = _chosen(processes)
    ranks = [RankProcess(one.pid, one.name, one.answers, told.get(one.pid, ("", None))[1]) for one in chosen]
    return sorted(ranks, key=_order)[:RANKS_MAX]


def _order(rank: RankProcess) -> tuple[str, int, int]:
    kind, _, number = rank.name.partition("-")
    return kind, int(number or 0), rank.pid


def _chosen(processes: Iterable[_Process]) -> list[_Process]:
    """Return of each name the processes that answer, or else one; of the nameless one alone if there are no names."""
    by_pid = {one.pid: one for one in processes}
    groups: dict[str, list[_Process]] = {}
    for one in by_pid.values():
        groups.setdefault(one.name, []).append(one)
    found = []
    for name, group in groups.items():
        answering = [one for one in group if one.answers is not None and not _is_below_alike(one, by_pid)]
        if answering:
            found += answering
        elif name or len(groups) == 1:
            found.append(max(group, key=lambda one: one.likelihood))  # the first of equals is nearest the root
    return found


def _is_below_alike(process: _Process, by_pid: Mapping[int, _Process]) -> bool:
    """Say whether a process above it has its name and answers: then it is a helper, such as a loader of batches."""
    above = by_pid.get(process.parent)
    while above is not None:
        if above.name == process.name and above.answers is not None:
            return True
        above = by_pid.get(above.parent)
    return False


def _process(pid: int, told: Mapping[int, tuple[str, int | None]], names: Mapping[int, str]) -> _Process | None:
    """Return what is known of a process, None if it is gone."""
    try:
        with open(f"/proc/{pid}/status", encoding="utf-8", errors="replace") as file:  # noqa: PTH123
            status = dict(line.rstrip("\n").split(":\t", 1) for line in file if ":\t" in line)
        parent, threads = int(status["PPid"]), int(status["Threads"])
        takes = bool(int(status["SigCgt"], 16) & 1 << (SIGURG - 1))
    except (OSError, KeyError, ValueError):
        return None
    answers = _answers(pid) if takes else None
    name = told.get(pid, ("", None))[0] or names.get(pid, "")
    return _Process(pid, parent, name, answers, ("python" in status.get("Name", ""), threads))


def _answers(pid: int) -> int | None:
    """Return the descriptor of the file that this very process made for its answers."""
    with suppress(OSError, ValueError):
        for name in os.listdir(f"/proc/{pid}/fd")[:DESCRIPTORS_MAX]:  # noqa: PTH208
            with suppress(FileNotFoundError):
                target = os.readlink(f"/proc/{pid}/fd/{name}")  # noqa: PTH115
                if target.startswith(_FILE) and target.split(" ")[0] == f"{_FILE}{pid}":
                    return int(name)
    return None


def _names_of(pids: Iterable[int]) -> Mapping[int, str]:
    """Return the names that launchers gave, of the processes whose environment can be read in time."""
    names: dict[int, str] = {}

    def read(pid: int) -> None:
        with suppress(OSError), open(f"/proc/{pid}/environ", "rb") as file:  # noqa: PTH123
            words = file.read(ENVIRON_BYTES_MAX).split(b"\0")
            env = {name: text for name, _, text in (word.partition(b"=") for word in words)}
            names[pid] = next(
                (f"{kind}-{int(env[key])}" for variable, kind in _NAMES if _is_number(env, key := variable.encode())),
                "",
            )

    threads = [threading.Thread(target=read, args=(pid,), daemon=True) for pid in pids]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(ENVIRON_S_MAX / len(threads) if thread.is_alive() else 0)
    return dict(names)


def _is_number(env: Mapping[bytes, bytes], key: bytes) -> bool:
    return env.get(key, b"").isdigit() and len(env[key]) <= 10


def _progress(folder: str) -> Mapping[int, tuple[str, int | None]]:
    """Return name and step of each process that has a progress file."""
    found: dict[int, tuple[str, int | None]] = {}
    if folder:
        with suppress(OSError), open_folder(folder) as opened:
            for name in first_names(opened):
                if not is_rank_name(name):
                    continue
                with suppress(OSError):
                    line = parse_progress(read_start(opened, name, LINE_BYTES_MAX))
                    if line.pid:
                        found[line.pid] = "" if name.startswith("pid-") else name, line.step
    return found
