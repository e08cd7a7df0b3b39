"""
Draw a scenario from a seed: the group, its manifest, the machines and their speed.

The manifests are those of examples/, which users copy.
"""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from random import Random
from typing import Final

from inplace import examples
from inplace.common.jobset.members import MemberPolicy
from inplace.common.jobset.settings import RESTART
from inplace.common.kube.resources import KubeObject
from inplace.common.protocol.members import Sizes
from inplace.common.protocol.rank import StallSettings
from inplace.common.wire import names as wire
from inplace.common.wire.mode import Mode
from inplace.common.wire.stall_limit import limits_text
from inplace.simulator.cluster.manifests import held_by_probe, read_manifests
from inplace.simulator.cluster.timings import Latency, Timings

PODS_MAX = 8  # small groups show what large ones do, thousands of times a minute (Kivi, ATC'24)
NAMESPACE = "default"
JOBSET = "train"
RESTARTS_PLENTY = 1000

# Times are short and vary widely: a campaign searches for wrong orders, not for durations.
SHORT = Timings(
    pleg_relist_s=0.5,
    sandbox=Latency(0.01, 0.3),
    container_start=Latency(0.01, 0.4),
    process_exit=Latency(0.001, 0.3),
    agent_start=Latency(0.001, 0.3),
    supervised_exit=Latency(0.001, 0.3),
    supervised_left=Latency(0.001, 0.3),
    worker_first_step=Latency(0.0, 0.0),
    barrier_answer=Latency(0.001, 0.003),
    api=Latency(0.0005, 0.02),
    watch=Latency(0.0, 0.0),
    bind=Latency(0.001, 0.05),
    job_sync_batch_s=0.2,
    job_failure_backoff_s=0.5,
    job_failure_backoff_s_max=4.0,
    node_lost_s=6.0,
)


SHARE_EVERY: Final = (2, 5, 1000)  # the last: never
WAITS_S: Final = (0, 1, 3, 10, 60)  # of a barrier for more members
BACKOFF: Final = "backoff=1,backoff-max=8"  # short, as all times of a campaign: a group comes together in 400 s


@dataclass(frozen=True, slots=True)
class Scenario:
    """One group and its surroundings.

    Args:
        jobs, pods_per_job: the group's shape.
        mode: how its workers are run.
        max_restarts: spec.failurePolicy.maxRestarts.
        servers: API servers.
        lags_s: for each API server, the longest time by which its watch caches trail the store.
        controllers: processes that take part in the leader election.
        timings: the delays of kubelets, containers and requests.
        shuffles: ready tasks run in another order than they became ready.
        replaces_early: a Job replaces a Pod that still terminates, as a webhook of the cluster has it.
        pods_per_node: how many Pods fit on a node.
        limits: of the agents' watchdogs, as annotations of the JobSet; None where nobody watches.
        save_within_s: how long workers may take to save before a planned stop; 0: they are not asked.
        fence_after_s: of the supervisors' leases, as an annotation of the JobSet; None for none.
        members: how many Pods train, and for how long the barrier waits for the most; None: all do.
        share_every: so many steps workers save in their Pods for one on storage that all can read; 0: they save none.
        completes: at the end, workers end with success and the JobSet completes.
    """

    jobs: int = 1
    pods_per_job: int = 3
    mode: Mode = Mode.PROBE
    max_restarts: int = RESTARTS_PLENTY
    servers: int = 1
    lags_s: tuple[float, ...] = (0.0,)
    controllers: int = 1
    timings: Timings = SHORT
    shuffles: bool = False
    replaces_early: bool = False
    pods_per_node: int = 3
    limits: StallSettings | None = None
    save_within_s: int = 0
    fence_after_s: int | None = None
    members: MemberPolicy | None = None
    share_every: int = 0
    completes: bool = True

    @property
    def pods(self) -> int:
        """Return the number of Pods of the group."""
        return self.jobs * self.pods_per_job

    def manifest(self) -> KubeObject:
        """Return the JobSet."""
        example = _example("train-supervisor.yaml" if self.mode is Mode.SUPERVISOR else "train.yaml")
        jobset = held_by_probe(example) if self.mode is Mode.PROBE else deepcopy(example)
        spec = jobset["spec"]
        spec["failurePolicy"]["maxRestarts"] = self.max_restarts
        replicated = spec["replicatedJobs"][0]
        replicated["replicas"] = self.jobs
        job = replicated["template"]["spec"]
        job["parallelism"] = job["completions"] = self.pods_per_job
        annotations = jobset["metadata"].setdefault("annotations", {})
        annotations[wire.FAILURES] = BACKOFF
        if self.limits is not None:
            annotations[wire.STALL] = limits_text(self.limits.stall_after_s, self.limits.start_stall_after_s)
        if self.fence_after_s is not None:
            annotations[wire.FENCE_AFTER] = str(self.fence_after_s)
        if self.members is not None:
            sizes = self.members.sizes
            text = f"max={sizes.most},min={sizes.least},step={sizes.step},wait={self.members.wait_s}"
            annotations[wire.MEMBERS] = text
        if self.save_within_s:
            job["template"]["spec"]["terminationGracePeriodSeconds"] = 2 * self.save_within_s
            annotations |= RESTART.with_part(annotations, "save-within", self.save_within_s)
        if self.mode is Mode.CONTAINERS:
            annotations |= RESTART.with_part(annotations, "depth", wire.DEPTH_CONTAINERS)
        return jobset

    def __str__(self) -> str:
        lags = "/".join(f"{lag_s:g}" for lag_s in self.lags_s)
        return (
            f"{self.jobs}x{self.pods_per_job} Pods, {self.mode}, maxRestarts {self.max_restarts}, "
            f"{self.servers} API servers (lag up to {lags} s), {self.controllers} controllers"
            + (", Pods are replaced early" if self.replaces_early else "")
            + (f", {_in_words(self.members)}" if self.members is not None else "")
            + (f", each {self.share_every}th step is shared" if self.share_every else "")
            + (f", hangs after {self.limits.stall_after_s:g} s" if self.limits is not None else "")
        )


def draw_scenario(rng: Random) -> Scenario:
    """Return the scenario of a seed."""
    jobs = rng.choice((1, 1, 2, 3, 4))
    least, most = 2 if jobs == 1 else 1, PODS_MAX // jobs
    per_job = min(rng.randint(least, most), rng.randint(least, most))  # small groups cost less and find as much
    servers = rng.choice((1, 2, 3))
    scenario = Scenario(
        jobs=jobs,
        pods_per_job=per_job,
        mode=rng.choice((Mode.PROBE, Mode.CONTAINERS, Mode.SUPERVISOR)),
        max_restarts=rng.choice((1, 2, 3)) if rng.random() < 0.15 else RESTARTS_PLENTY,
        servers=servers,
        lags_s=tuple(rng.choice((0.0, 0.01, 0.1, 1.0)) for _ in range(servers)),
        controllers=rng.choice((1, 2)),
        shuffles=rng.random() < 0.5,
        replaces_early=rng.random() < 0.25,
    )
    is_watched = rng.random() < 0.5 and scenario.mode.is_guarded
    if is_watched:
        scenario = replace(scenario, limits=draw_limits(rng))
    is_process = scenario.mode is Mode.CONTAINERS and rng.random() < 0.5
    scenario = replace(scenario, mode=Mode.PROCESS) if is_process else scenario
    scenario = with_members(scenario, rng) if rng.random() < 0.5 else scenario
    saves = scenario.mode.is_guarded and scenario.limits is None and rng.random() < 0.5  # a watchdog has other files
    return replace(scenario, share_every=rng.choice(SHARE_EVERY)) if saves else scenario


def with_members(scenario: Scenario, rng: Random) -> Scenario:
    """Return a scenario of the same size with spares, whose workers have guards that tell them their ranks.

    Its units are the Pods of one Job; where the scenario has several Jobs, half of the time these are.
    """
    slots = max(2, scenario.pods)
    most = rng.choice((slots, max(1, slots - 1), rng.randint(1, slots)))
    least = rng.choice((most, 1, rng.randint(1, most), rng.randint(1, most)))
    step = rng.choice([step for step in range(1, most + 1) if (most - least) % step == 0])
    policy = MemberPolicy(Sizes(least, most, step), rng.choice(WAITS_S))
    mode = scenario.mode if scenario.mode.is_guarded else rng.choice((Mode.CONTAINERS, Mode.SUPERVISOR))
    if scenario.jobs > 1 and rng.random() < 0.5:  # drawn last: other seeds stay as they are
        most = rng.choice((scenario.jobs, scenario.jobs - 1, rng.randint(1, scenario.jobs)))
        sizes = Sizes(rng.choice((most, 1, rng.randint(1, most))), most)
        return replace(scenario, mode=mode, members=MemberPolicy(sizes, policy.wait_s))
    return replace(scenario, jobs=1, pods_per_job=slots, mode=mode, members=policy)


def _in_words(members: MemberPolicy) -> str:
    sizes = members.sizes
    return f"members {sizes.most} to {sizes.least} by {sizes.step} after {members.wait_s} s"


def draw_limits(rng: Random) -> StallSettings:
    """Return limits that are short, as all times of a campaign."""
    stall_s = rng.choice((2.0, 4.0, 8.0))
    return StallSettings(stall_s, rng.choice((None, 2 * stall_s, 4 * stall_s)))


@cache
def _example(name: str) -> KubeObject:
    documents = read_manifests(Path(examples.__file__).parent / name)
    jobset: KubeObject = next(document for document in documents if document["kind"] == "JobSet")
    return jobset
