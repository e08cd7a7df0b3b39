"""
Model API servers and a controller as queues of work, event by event, with a profile's numbers.

A server has cores, which do the work in the order of arrival, and seats for which agents' requests wait (priority and
fairness). One flow has one queue of `fairness.queued_max` places. Not modelled: memory, TLS records, the network's
bandwidth, other users, a fair order between flows. Source of the rejections: k8s.io/apiserver pkg/util/flowcontrol
(dropped_requests_tracker.go, queueset.go).
"""

from __future__ import annotations

import heapq
import math
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any, Final

import yaml

from inplace.simulator.profile import Profile

APF: Final = Path(__file__).parents[1] / "deploy" / "apf" / "flowcontrol.yaml"
DEFAULT_SHARES: Final = 245  # of all default levels together; bootstrap/default.go
RETRY_AFTER_S_MAX: Final = 32
QUEUE_WAIT_S: Final = 15.0  # a quarter of the 60 s request timeout
EVENTS_AT_ONCE: Final = 50  # watchers whose events are written as one piece of work: the model's grain
SIMULATED_S_MAX: Final = 3600.0

Done = Callable[[float], None]
Refused = Callable[[float, float], None]


class Agenda:
    """What happens when, in the order of time and then of entry."""

    def __init__(self) -> None:
        self._events: list[tuple[float, int, Callable[..., object], tuple[Any, ...]]] = []
        self._count = 0

    def at(self, time_s: float, do: Callable[..., object], *arguments: Any) -> None:
        """Call `do(time_s, *arguments)` at that time."""
        self._count += 1
        heapq.heappush(self._events, (time_s, self._count, do, arguments))

    def run(self) -> None:
        """Let everything happen."""
        while self._events:
            now_s, _, do, arguments = heapq.heappop(self._events)
            if now_s > SIMULATED_S_MAX:
                raise RuntimeError(
                    f"expected the modelled group to be back within {SIMULATED_S_MAX:g} s, saw that it is not"
                )
            do(now_s, *arguments)


class Cores:
    """Identical cores that take work in the order in which it comes."""

    def __init__(self, count: int) -> None:
        self._free_s = [0.0] * count

    def work(self, now_s: float, cpu_s: float) -> float:
        """Return when work that comes now is done."""
        done_s = max(now_s, self._free_s[0]) + cpu_s
        heapq.heapreplace(self._free_s, done_s)
        return done_s


@dataclass(frozen=True, slots=True)
class Level:
    """A priority level as the agents' one flow meets it: its seats now and after lent ones came back, and its line."""

    seats_idle: int
    seats: int
    queued_max: int


def default_level(profile: Profile) -> Level:
    """Return where agents go on a cluster without deploy/apf."""
    return Level(*(int(profile[f"fairness.{name}"]) for name in ("seats_idle", "seats", "queued_max")))


def shipped_level(profile: Profile) -> Level:
    """Return the level of deploy/apf; the seats that it may lend are lent out when the herd comes."""
    found = next(d for d in yaml.safe_load_all(APF.read_text()) if d["kind"] == "PriorityLevelConfiguration")
    limited = found["spec"]["limited"]
    shares, queuing = limited["nominalConcurrencyShares"], limited["limitResponse"]["queuing"]
    seats = math.ceil(profile["fairness.total_seats"] * shares / (DEFAULT_SHARES + shares))
    kept = math.ceil(seats * (100 - limited["lendablePercent"]) / 100)
    return Level(kept, seats, queuing["handSize"] * queuing["queueLengthLimit"])


@dataclass(slots=True)
class _Waiting:
    cpu_s: float
    commit_s: float
    done: Done
    refused: Refused
    gone: bool = False


@dataclass(slots=True)
class Server:
    """One API server.

    Args:
        lend_s: when lent seats come back for the first time.
    """

    agenda: Agenda
    cores: Cores
    level: Level
    lend_s: float
    rejected: int = 0
    _running: int = 0
    _line: deque[_Waiting] = field(default_factory=deque)
    _retry_after_s: int = 1
    _raised_s: int = -(10**9)
    _dropped: Counter[int] = field(default_factory=Counter)
    _second: int = 0

    def ask(self, now_s: float, cpu_s: float, commit_s: float, done: Done, refused: Refused) -> None:
        """Take a request: `done(when)`, or `refused(when, Retry-After)`."""
        asked = _Waiting(cpu_s, commit_s, done, refused)
        if self._running < self._seats(now_s):
            self._start(now_s, asked)
        elif len(self._line) < self.level.queued_max:
            self._line.append(asked)
            self.agenda.at(now_s + QUEUE_WAIT_S, self._give_up, asked)
        else:
            self._reject(now_s, asked)

    def write(self, now_s: float, cpu_s: float, commit_s: float) -> float:
        """Return when a write of a kubelet or the controller is stored: their levels have seats enough."""
        return self.cores.work(now_s, cpu_s) + commit_s

    def tell(self, now_s: float, watchers: list[int], cpu_s: float, told: Callable[[float, list[int]], None]) -> None:
        """Send one event to the watchers, each at its own cost."""
        for first in range(0, len(watchers), EVENTS_AT_ONCE):
            some = watchers[first : first + EVENTS_AT_ONCE]
            self.agenda.at(self.cores.work(now_s, cpu_s * len(some)), told, some)

    def _seats(self, now_s: float) -> int:
        return self.level.seats if now_s >= self.lend_s else self.level.seats_idle

    def _start(self, now_s: float, asked: _Waiting) -> None:
        self._running += 1
        self.agenda.at(self.cores.work(now_s, asked.cpu_s) + asked.commit_s, self._end, asked)

    def _end(self, now_s: float, asked: _Waiting) -> None:
        self._running -= 1
        asked.done(now_s)
        while self._line and self._running < self._seats(now_s):
            following = self._line.popleft()
            if not following.gone:
                following.gone = True
                self._start(now_s, following)

    def _give_up(self, now_s: float, asked: _Waiting) -> None:
        if not asked.gone:
            asked.gone = True
            self._line.remove(asked)
            self._reject(now_s, asked)

    def _reject(self, now_s: float, asked: _Waiting) -> None:
        self.rejected += 1
        while self._second < int(now_s):
            self._second += 1
            self._adjust()
        self._dropped[int(now_s)] += 1
        asked.refused(now_s, float(self._retry_after_s))

    def _adjust(self) -> None:
        """Double Retry-After while many are rejected, lower it by one when few are."""
        wait_s = self._retry_after_s
        dropped = sum(self._dropped[second] for second in range(self._second - wait_s, self._second))
        if self._second - self._raised_s >= wait_s and dropped >= 3 * wait_s:
            self._retry_after_s, self._raised_s = min(2 * wait_s, RETRY_AFTER_S_MAX), self._second
        elif dropped < wait_s and wait_s > 1:
            self._retry_after_s -= 1


def servers_of(profile: Profile, agenda: Agenda, *, apf: bool, rng: Random) -> list[Server]:
    """Return the API servers of a profile, each at its own moment of the lending period."""
    level = shipped_level(profile) if apf else default_level(profile)
    period_s = profile["fairness.lend_period_s"]
    return [
        Server(agenda, Cores(int(profile["apiserver.cores"])), level, rng.uniform(0.0, period_s))
        for _ in range(int(profile["apiserver.servers"]))
    ]
