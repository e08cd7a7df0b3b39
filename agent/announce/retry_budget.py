"""
How long an agent waits before it tries again: one budget for all its requests.

The watch and the announcement fail together when the server is in trouble. So they share one count of failures and one
sequence of retries: each retry is a full-jitter wait AFTER the previous one, of either task. An agent in trouble
therefore sends one request per RETRY_CAP_S / 2 on average, not one per task. Failures that a retry cannot cure
(`Denied`) wait longer, outside that sequence, so that they delay no other request.
"""

from __future__ import annotations

from random import Random
from typing import Final

from inplace.agent.announce.jobset_requests import WATCH_TIMEOUT_S
from inplace.common.kube.backoff import Backoff
from inplace.common.kube.watch import Busy, Closed, Denied, Gone, WatchEnding

RETRY_BASE_S: Final = 0.5  # a blip should cost less than a second
RETRY_CAP_S: Final = 30.0  # 5,000 agents: 330 requests per second in the worst hour of an API server
DENIED_BASE_S: Final = 1.0  # the controller gives rights when it sees the Pod; later a person must change something
DENIED_CAP_S: Final = 120.0  # 5,000 agents: 80 requests per second
HEALTHY_S: Final = 10.0  # what has worked for this long ends a row of failures
FREE_ENDINGS_MAX: Final = 2  # clean ends of a watch in a row that count as no failure


class RetryBudget:
    """Say how long to wait before trying again.

    Args:
        rng: source of the jitter.
        spread_s: least bound of a wait that the server did not ask for: when an API server is replaced or lost, the
            watches of the whole group end at once. 0 for small groups. A watch that came to the end of its own time
            ended alone, and is opened again at once.
    """

    def __init__(self, rng: Random, spread_s: float = 0.0) -> None:
        self._rng = rng
        self._spread_s = spread_s
        self._retry = Backoff(RETRY_BASE_S, RETRY_CAP_S, rng)
        self._denied = Backoff(DENIED_BASE_S, DENIED_CAP_S, rng)
        self._free = 0
        self._due_s = float("-inf")  # of the last retry in the line
        self._works_since_s: float | None = None

    def note_success(self, now_s: float) -> None:
        """Note a success: the server took the announcement, or a watch's first line came."""
        if self._works_since_s is None:
            self._works_since_s = now_s

    def wait_s(self, ending: WatchEnding, now_s: float) -> float:
        """Return the seconds to wait after `ending`; `now_s` is monotonic."""
        worked_s = 0.0 if self._works_since_s is None else now_s - self._works_since_s
        if worked_s >= HEALTHY_S:
            self._retry.reset()
            self._denied.reset()
            self._free = 0
        self._works_since_s = None
        match ending:
            case Closed() | Gone() if self._free < FREE_ENDINGS_MAX:
                self._free += 1
                return 0.0 if worked_s >= WATCH_TIMEOUT_S else self._rng.uniform(0.0, self._spread_s)
            case Denied():
                return self._denied.next_s()
            case Busy(after_s=after_s) if after_s > 0:
                return self._in_line_s(now_s, after_s, width_s=after_s)
            case _:
                return self._in_line_s(now_s, 0.0, width_s=self._spread_s)

    def _in_line_s(self, now_s: float, after_s: float, width_s: float) -> float:
        """Return the wait of a retry that comes after the one before it, and not before `after_s`."""
        jitter_s = self._retry.next_s(after_s, width_s) - after_s
        self._due_s = max(self._due_s, now_s + after_s) + jitter_s
        return self._due_s - now_s
