"""
The agent's numbers, as plain integers; `agent.report.exposition` turns them into Prometheus' formats when scraped.

Label values are bounded: verbs, outcomes, causes and phases are names from this project, never text from a server.

`observe(RestartPhase.STOP, seconds)` feeds the histogram and, until the next announcement is built, `ended`, from which
`agent.report.phases` writes the annotation. That module also does the timing: callers tell it moments, not durations.
"""

from __future__ import annotations

from collections import Counter

from inplace.common.bare.typed import Final
from inplace.common.wire.phases import RestartPhase

# Seconds. Edges at 1 (depth `process`'s promise at 5,000 Pods) and 10 (`containers`'); the start itself is some 50 ms.
PHASE_BUCKETS: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 300.0)


class Durations:
    """The observations of one phase: how many fell into each bucket, and their sum in seconds."""

    __slots__ = ("counts", "sum_s")

    def __init__(self) -> None:
        self.counts = [0] * (len(PHASE_BUCKETS) + 1)  # the last one is beyond every edge
        self.sum_s = 0.0

    def add(self, seconds: float) -> None:
        """Count one observation; an edge belongs to the bucket that it ends."""
        self.counts[sum(seconds > edge for edge in PHASE_BUCKETS)] += 1
        self.sum_s += seconds


class AgentMetrics:
    """What one agent counts. No dataclass: it is on the start path.

    Attributes:
        requests: by (verb, outcome); verbs watch, list, patch; outcomes "ok" and the causes of
            `agent.announce.retry_causes`.
        retries: waits before something was tried again, by (verb, outcome of what failed).
        throttled: answers 429.
        throttled_wait_s: seconds that were waited because of them.
        watch_endings: by cause, see `agent.announce.retry_causes.cause_of`.
        epoch: the epoch this process announced, 0 before.
        synced, deprecated: the newest S and D seen.
        lifted: the barrier is lifted.
        ranks_work_s: what its own work on a step takes, seconds, by rank; only of ranks that say how long they wait.
        heard_s: when the server last spoke of the JobSet (list, event, bookmark), on the agent's clock; None before.
        durations: by phase, all that this process measured.
        ended: the newest duration of each phase that ended since an announcement was last built, in seconds.
    """

    __slots__ = (
        *("requests", "retries", "throttled", "throttled_wait_s", "watch_endings", "epoch", "synced", "deprecated"),
        *("lifted", "heard_s", "durations", "ended", "ranks_work_s"),
    )

    def __init__(self) -> None:
        self.requests: Counter[tuple[str, str]] = Counter()
        self.retries: Counter[tuple[str, str]] = Counter()
        self.throttled = 0
        self.throttled_wait_s = 0.0
        self.watch_endings: Counter[str] = Counter()
        self.epoch = self.synced = self.deprecated = 0
        self.lifted = False
        self.ranks_work_s: dict[str, float] = {}
        self.heard_s: float | None = None
        self.durations: dict[RestartPhase, Durations] = {}
        self.ended: dict[RestartPhase, float] = {}

    def observe(self, phase: RestartPhase, seconds: float) -> None:
        """Note how long a phase took that has just ended."""
        self.ended[phase] = seconds
        self.durations.setdefault(phase, Durations()).add(seconds)

    def wait(self, verb: str, cause: str, seconds: float, *, throttled: bool) -> None:
        """Count a failure that is followed by a wait of so many seconds; `throttled`: the answer was 429."""
        self.retries[verb, cause] += 1
        if throttled:
            self.throttled += 1
            self.throttled_wait_s += seconds
