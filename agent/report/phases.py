"""
Time the phases of this Pod's restarts, and hand them over: to the metrics, to the annotation, to the next process.

A sidecar's process dies in every group restart. What it measured lives on in a small file beside EPOCH_FILE, and the
next process puts it into its announcement. A phase is in one annotation at most: the first announcement that is built
after it ended takes it along, and that text is then frozen for its epoch, so that a repeated PATCH has the same bytes.

It also hands on with which code a worker ended by itself, and how far the worker was: a text of the watchdog's that is
not read here.

Guarantees: nothing is written BEFORE an announcement left; a file that is missing, garbled, of another boot or on a
full disk costs its numbers and nothing else. Durations come from one clock that a restart of the process does not reset
(CLOCK_BOOTTIME) and that nobody sets. It imports nothing that the start path does not have.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

from inplace.agent.report.metrics import AgentMetrics
from inplace.agent.shared_file import read_shared, write_shared
from inplace.common.bare.typed import Final
from inplace.common.protocol.errors import RemoteProtocolError
from inplace.common.wire.phases import TEXT_BYTES_MAX, RestartPhase, exit_code_of, parse_phases, phases_text

_BOOT_ID: Final = "/proc/sys/kernel/random/boot_id"
_STAT: Final = "/proc/self/stat"
_STAT_START: Final = 19  # of the fields after the command's name: starttime, proc(5) field 22
_TICKS_PER_S: Final = 100  # USER_HZ, the same on every architecture that Kubernetes runs on
_FILE_BYTES_MAX: Final = TEXT_BYTES_MAX + 64 + 32  # the text, a boot id, a number of seconds
_START_AGE_S_MAX: Final = 60.0  # a process that is older when it gets here was not started by this restart
_TOLD: Final = ",quiet="  # begins the text of common.wire.last_progress, which is loaded only where steps are watched
_TOLD_BYTES_MAX: Final = 88  # of that text; what is longer is not ours


def boot_s() -> float:
    """Return seconds since the machine's start; they go on when a process ends, and while the machine sleeps."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


def process_started_s(now_s: float, stat: str = _STAT) -> float:
    """Return when this process was made, on `boot_s`'s clock, to 10 ms; `now_s` where the system does not say so."""
    try:
        with open(stat, "rb") as file:  # noqa: PTH123 - pathlib costs 3 ms on the start path
            ticks = int(file.read(1024).rpartition(b")")[2].split()[_STAT_START])
    except (OSError, ValueError, IndexError):
        return now_s
    started_s = ticks / _TICKS_PER_S
    return started_s if 0.0 <= now_s - started_s <= _START_AGE_S_MAX else now_s


class PhaseFile:
    """What one process leaves for the next: what no announcement carried yet, and when it ended."""

    def __init__(self, path: str, boot_id_path: str = _BOOT_ID) -> None:
        self._path = path
        self._boot_id_path = boot_id_path

    def keep(
        self, ended: Mapping[RestartPhase, float], told: str, left_s: float | None, code: int | None = None
    ) -> None:
        """Write the file anew; a disk that refuses costs these numbers only."""
        moment = "-" if left_s is None else f"{left_s:.3f}"
        text = phases_text(ended, told=told, code=code)
        try:
            write_shared(self._path, f"{text} {self._boot_id()} {moment}".encode("ascii"))
        except OSError:
            return

    def recall(self) -> tuple[dict[RestartPhase, float], str, int | None, float | None]:
        """Return (phases, the worker's last progress, how a worker ended by itself, when the last process ended).

        Nothing where there is no file; no moment from before the machine started.
        """
        try:
            text, boot_id, moment = read_shared(self._path, _FILE_BYTES_MAX).decode("ascii").split(" ")
            left_s = None if moment == "-" else float(moment)
            phases = parse_phases(text)  # of the whole text: what is handed on follows the grammar
        except (OSError, ValueError, RemoteProtocolError):
            return {}, "", None, None
        _, begins, rest = text.partition(_TOLD)
        told = begins + rest if len(begins + rest) <= _TOLD_BYTES_MAX else ""
        return phases, told, exit_code_of(text), left_s if boot_id == self._boot_id() else None

    def _boot_id(self) -> str:
        """Return the id of this boot, "?" where the system has none."""
        try:
            with open(self._boot_id_path, encoding="ascii") as file:  # noqa: PTH123
                return file.read(64).strip() or "?"
        except (OSError, ValueError):
            return "?"


class RestartPhases:
    """Time one agent's part in the restarts of its group.

    Whoever announces calls `announcing` for the text to send and `accepted` when the server took it; the shell calls
    `lifted` and, at the process's end, `leave`. One that stays calls `worker_down`, `worker_gone` and `worker_runs`.

    Args:
        metrics: where durations go, and where those that ended since the last announcement are.
        now_s: seconds on a clock that never goes back; `boot_s` in a process of its own.
        wall_s: Unix time.
        started_s: when this process was made, on that clock; None is now.
        file: what survives the process; None keeps nothing.
        annotate: write the annotation.
    """

    def __init__(
        self,
        metrics: AgentMetrics,
        *,
        now_s: Callable[[], float],
        wall_s: Callable[[], float] = time.time,
        started_s: float | None = None,
        file: PhaseFile | None = None,
        annotate: bool = True,
    ) -> None:
        self._metrics = metrics
        self._now_s = now_s
        self._wall_s = wall_s
        self._started_s = now_s() if started_s is None else started_s
        self._file = file
        self._annotate = annotate
        self._epoch = 0  # the announcement that `_text` belongs to
        self._text = ""
        self._told = ""  # how far the worker was, until an announcement carries it
        self._code: int | None = None  # with which a worker ended by itself, until an announcement carries it
        self._chosen_s = self._started_s
        self._accepted_s: float | None = None  # while the barrier holds an accepted announcement back
        self._lifted_once = False
        self._down_s: float | None = None  # while the worker is down
        self._recalled = False

    def recall(self) -> None:
        """Take over what the last process left, and time the gap between the two; once, while a request is out."""
        if self._recalled or self._file is None:
            return
        self._recalled = True
        phases, told, code, left_s = self._file.recall()
        self._told = self._told or told
        self._code = code if self._code is None else self._code
        self._metrics.ended = phases | self._metrics.ended
        if left_s is not None and left_s <= self._started_s + 1 / _TICKS_PER_S:
            self._metrics.observe(RestartPhase.KUBELET, max(0.0, self._started_s - left_s))

    def announcing(self, epoch: int) -> str:
        """Return the annotation's value for the announcement of `epoch`, "" for none; the same each time."""
        if epoch == self._epoch:
            return self._text
        self.recall()
        self._chosen_s = self._now_s()
        if self._epoch == 0:
            self._metrics.observe(RestartPhase.VIEW, self._chosen_s - self._started_s)
        if self._down_s is not None:
            self._metrics.observe(RestartPhase.DEATH, self._chosen_s - self._down_s)
        self._epoch = epoch
        self._accepted_s = None
        seconds, told = self._metrics.ended, self._told
        self._text = phases_text(seconds, self._wall_s(), told, code=self._code) if self._annotate else ""
        self._metrics.ended.clear()
        self._told, self._code = "", None
        return self._text

    def accepted(self) -> None:
        """Note that the server took the announcement; a second time, of a reminder, says nothing new."""
        if self._accepted_s is not None:
            return
        now_s = self._accepted_s = self._now_s()
        self._metrics.observe(RestartPhase.ANNOUNCE, now_s - self._chosen_s)
        self._keep(None)

    def lifted(self) -> None:
        """Note that the barrier is lifted."""
        now_s = self._now_s()
        if self._accepted_s is not None:
            self._metrics.observe(RestartPhase.BARRIER, now_s - self._accepted_s)
            self._accepted_s = None
        if not self._lifted_once:
            self._lifted_once = True
            self._metrics.observe(RestartPhase.LIFT, now_s - self._started_s)
        self._keep(None)

    def worker_down(self) -> None:
        """Note that the worker died, or was told to end: whichever is first."""
        if self._down_s is None:
            self._down_s = self._now_s()

    def worker_stepped(self, told: str) -> None:
        """Take in how far the worker was that ends, for the next announcement; "" where nobody watched it."""
        self._told = told

    def worker_ended(self, code: int) -> None:
        """Note that a worker ended by itself, for the next announcement."""
        self._code = code

    def worker_gone(self) -> None:
        """Note that no process of the worker is left; BEFORE the announcement that says so."""
        if self._down_s is not None:
            self._metrics.observe(RestartPhase.STOP, self._now_s() - self._down_s)

    def worker_runs(self, took_s: float) -> None:
        """Note that the worker's process runs, `took_s` seconds after it was allowed to."""
        self._metrics.observe(RestartPhase.START, took_s)
        if self._down_s is not None:
            self._metrics.observe(RestartPhase.DOWN, self._now_s() - self._down_s)
            self._down_s = None

    def leave(self) -> None:
        """Note that this process ends now."""
        self._keep(self._now_s())

    def _keep(self, left_s: float | None) -> None:
        if self._file is not None:
            self._file.keep(self._metrics.ended, self._told, left_s, self._code)
