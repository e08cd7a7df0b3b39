"""
A group that starts against a modelled API server, event by event: what the constants of agent.herd were chosen with.

The agents' part is the real one (`Herd`, `RetryBudget`); the server is a single line of requests with a service rate,
room for as many as the default priority level lets one flow have (seats + hand x queue length), and a Retry-After
that doubles and falls as the real one's. Not modelled: seats that are lent every 10 s, the 15 s a request may queue,
TLS, several servers.
Source of the server's part: k8s.io/apiserver pkg/util/flowcontrol (dropped_requests_tracker.go, queueset.go).
"""

from __future__ import annotations

import heapq
from collections import Counter
from dataclasses import dataclass, field
from random import Random
from statistics import fmean

from agent.herd import RATE_PER_S, WINDOW_S, Herd
from agent.retry_budget import RetryBudget
from common.kube.errors import Throttled
from common.kube.watch import Busy

SEATS, QUEUED_MAX = 56, 300  # of an idle cluster's workload-low, for one ServiceAccount
RETRY_AFTER_S_MAX = 32
REQUESTS_PER_START = 3  # list, patch, watch
THINK_S = 0.005  # of an agent, from an answer to its next request
SIMULATED_S_MAX = 3600.0
SERVERS_PER_S = (300.0, 1000.0, 3000.0, 10_000.0, 30_000.0)  # two cores; one small server; ...; three large ones


@dataclass(frozen=True, slots=True)
class Way:
    """A choice of constants."""

    window_s_max: float
    rate_per_s: float = RATE_PER_S


WAYS = {
    "no slots": Way(0.0),
    "1 s": Way(1.0),
    "3 s (ours)": Way(WINDOW_S),
    "10 s": Way(10.0),
    "1,000/s, up to 10 s": Way(10.0, rate_per_s=1000),
}


@dataclass(slots=True)
class ModelServer:
    """Serve one request after the other.

    Args:
        rate_per_s: requests per second.
        room: requests in service and queued; one more is rejected.
    """

    rate_per_s: float
    room: int = SEATS + QUEUED_MAX
    free_s: float = 0.0
    retry_after_s: int = 1
    raised_s: int = -(10**9)
    rejected: Counter[int] = field(default_factory=Counter)
    second: int = 0

    def serve(self, now_s: float) -> float | None:
        """Return when a request that comes now is answered; None when it is rejected."""
        while self.second < int(now_s):
            self.second += 1
            self._adjust()
        if max(0.0, self.free_s - now_s) * self.rate_per_s >= self.room:
            self.rejected[int(now_s)] += 1
            return None
        self.free_s = max(self.free_s, now_s) + 1.0 / self.rate_per_s
        return self.free_s

    def _adjust(self) -> None:
        """Double Retry-After while many are rejected, lower it by one when few are."""
        wait_s = self.retry_after_s
        dropped = sum(self.rejected[second] for second in range(self.second - wait_s, self.second))
        if self.second - self.raised_s >= wait_s and dropped >= 3 * wait_s:
            self.retry_after_s, self.raised_s = min(2 * wait_s, RETRY_AFTER_S_MAX), self.second
        elif dropped < wait_s and wait_s > 1:
            self.retry_after_s -= 1


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one simulated start of a group took.

    Args:
        done_s: from the first agent's start to the last one's watch.
        rejected: 429 answers, per agent.
        peak_per_s: most requests that came within one second.
    """

    done_s: float
    rejected: float
    peak_per_s: int


def simulate(
    size: int,
    server_per_s: float,
    *,
    rate_per_s: float = RATE_PER_S,
    window_s_max: float = WINDOW_S,
    started_within_s: float = 1.0,
    restart: bool = False,
    seed: int = 1,
) -> Outcome:
    """Start `size` agents, whose processes begin within `started_within_s`, and follow them to their watches.

    With `restart` they are supervisors: all have their watch, and within `started_within_s` each has one patch to send.
    """
    rng = Random(seed)
    server = ModelServer(server_per_s)
    arrivals: Counter[int] = Counter()
    budgets, left, events = [], [1 if restart else REQUESTS_PER_START] * size, []
    for index in range(size):
        herd = Herd(size, index, rng.random(), rate_per_s, window_s_max)
        budgets.append(RetryBudget(rng, herd.spread_s))
        slot_s = herd.restart_slot_s if restart else herd.start_slot_s
        events.append((rng.uniform(0.0, started_within_s) + slot_s, index))
    heapq.heapify(events)
    done_s = 0.0
    while events:
        now_s, index = heapq.heappop(events)
        assert now_s < SIMULATED_S_MAX, "the modelled group never became ready"
        arrivals[int(now_s)] += 1
        answered_s = server.serve(now_s)
        if answered_s is None:
            after_s = float(server.retry_after_s)
            wait_s = budgets[index].wait_s(Busy(after_s, Throttled(429, "TooManyRequests", "modelled")), now_s)
            heapq.heappush(events, (now_s + wait_s, index))
            continue
        done_s = max(done_s, answered_s)
        budgets[index].note_success(answered_s)
        left[index] -= 1
        if left[index]:
            heapq.heappush(events, (answered_s + THINK_S, index))
    return Outcome(done_s, server.rejected.total() / size, max(arrivals.values()))


def report(seeds: int = 3) -> str:
    """Return the choices that were weighed, for groups of two sizes against servers of several speeds."""
    lines = [f"mean of {seeds} runs: seconds until all are ready, 429s per agent, most requests within a second"]
    for size, restart in ((1000, False), (5000, False), (5000, True)):
        what = "supervisors restart: one patch each within 0.1 s" if restart else "agents start within 1 s"
        for server_per_s in SERVERS_PER_S:
            least_s = size * (1 if restart else REQUESTS_PER_START) / server_per_s
            lines.append(f"{size} {what}; a server of {server_per_s:g} requests/s needs {least_s:.1f} s")
            lines += [f"  {name:22} {_row(size, server_per_s, way, seeds, restart)}" for name, way in WAYS.items()]
    return "\n".join(lines)


def _row(size: int, server_per_s: float, way: Way, seeds: int, restart: bool) -> str:
    within_s = 0.1 if restart else 1.0
    seen = [
        simulate(
            size,
            server_per_s,
            rate_per_s=way.rate_per_s,
            window_s_max=way.window_s_max,
            started_within_s=within_s,
            restart=restart,
            seed=seed,
        )
        for seed in range(seeds)
    ]
    done_s, rejected = fmean(each.done_s for each in seen), fmean(each.rejected for each in seen)
    return f"{done_s:7.1f} s {rejected:6.2f} {max(each.peak_per_s for each in seen):7}/s"
