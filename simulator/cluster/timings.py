"""
Every delay that the embedded cluster draws, by name and with its source.

No other module of simulator.cluster holds a delay. `Timings()` has the delays of a real kubelet; `simulator.profile`
reads others.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import log
from random import Random


@dataclass(frozen=True, slots=True)
class Latency:
    """A uniform distribution over [low_s, high_s]; most sources give only these two numbers."""

    low_s: float
    high_s: float

    def draw(self, rng: Random) -> float:
        """Return seconds."""
        return self.low_s if self.high_s == self.low_s else rng.uniform(self.low_s, self.high_s)


@dataclass(frozen=True, slots=True)
class Tailed:
    """A log-normal distribution: most draws near the median, one in a hundred beyond p99_s, none beyond max_s."""

    median_s: float
    p99_s: float
    max_s: float

    def draw(self, rng: Random) -> float:
        """Return seconds."""
        sigma = log(self.p99_s / self.median_s) / NORMAL_P99
        return min(self.max_s, rng.lognormvariate(log(self.median_s), sigma))


Delay = Latency | Tailed
NORMAL_P99 = 2.3263  # standard deviations from the median to the 99th percentile
ZERO = Latency(0.0, 0.0)


@dataclass(frozen=True, slots=True)
class Timings:
    """The delays of an embedded cluster.

    Args:
        pleg_relist_s: period at which a kubelet looks for containers that died (kubelet.go
            genericPlegRelistPeriod). Containers that it kills itself it sees at once.
        sandbox: network and volumes of a new Pod. Image pulls are not modelled.
        container_start: create and start through the CRI, after the containers of the last run are removed.
            With half a relist period before it, it gives the ~1 s from an agent's exit to its next start
            measured with kubelet 1.36.3 and containerd 2.3 on one machine.
        process_exit: SIGTERM to gone, for a process that obeys.
        agent_start: exec of the agent to its first request. Exec to visible annotation took 49 to 249 ms on
            one lab machine; the requests in it are modelled by `api`.
        supervised_exit: SIGTERM to gone, for the worker of a supervisor, whose children obey with it.
        supervised_left: the time in which its leftovers end, AFTER supervised_exit.
        worker_first_step: exec of a worker to its first training step. No measurement: a model's own choice.
        barrier_answer: how long a probe's HTTP exchange takes.
        api: one way of a request to the API server.
        watch: a write to its event at the watchers, through the server's watch cache (which orders events, so one
            late event delays those behind it). A model's own choice.
        bind: one Pod's turn in the scheduler (some hundred Pods a second).
        job_sync_batch_s: how long the Job controller gathers Pod events (job_controller.go
            syncJobBatchPeriod).
        job_failure_backoff_s: wait before a failed Pod is replaced, doubling per failure
            (job_controller.go DefaultJobPodFailureBackOff).
        node_lost_s: from a node's death until its Pods are Failed: 40 s grace (nodeMonitorGracePeriod) and
            300 s (the default toleration of an unreachable node).
    """

    pleg_relist_s: float = 1.0
    sandbox: Delay = Latency(0.3, 1.0)
    container_start: Delay = Latency(0.3, 0.6)
    process_exit: Delay = Latency(0.02, 0.1)
    agent_start: Delay = Latency(0.04, 0.1)
    supervised_exit: Delay = Latency(0.02, 0.1)
    supervised_left: Delay = Latency(0.02, 0.1)
    worker_first_step: Delay = Latency(0.5, 1.0)
    barrier_answer: Delay = Latency(0.001, 0.003)
    api: Delay = Latency(0.001, 0.005)
    watch: Delay = Latency(0.001, 0.01)
    bind: Delay = Latency(0.002, 0.01)
    job_sync_batch_s: float = 1.0
    job_failure_backoff_s: float = 10.0
    job_failure_backoff_s_max: float = 600.0
    node_lost_s: float = 340.0


def local_processes() -> Timings:
    """Return the timings for containers that are local processes, whose own work takes real time."""
    return Timings(sandbox=ZERO, container_start=ZERO, api=ZERO, watch=ZERO, bind=ZERO)
