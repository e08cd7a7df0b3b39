"""
Compare what policies do when restarting alone does not help: node-hours lost, and the time until the training is done.

The real controller and the real agents run on the embedded Kubernetes in virtual time; workers and kubelets are models,
so no figure here is measured. A group trains until it has worked for some hours. It saves a checkpoint every
CHECKPOINT_S of its work; a death takes it back to the last one. A row is a scenario under a policy, the seeds' median:

    lost_node_hours   nodes of the group, those of its spares too, x the whole time, less the work that was kept
    finished_s        when the training was done, or the JobSet failed; twice the work if neither came
    done              seeds in which the training was done
    new_pods          Pods beyond the first of each rank: each begins with empty volumes

All policies have the same faults: the draws depend on the seed and on the group's own course alone.

    python -m benchmarks.policies --json --chart      (writes docs/policies.svg)
"""

from __future__ import annotations

import asyncio
import json
import statistics
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any, Final

import yaml

from benchmarks.chart import draw_bars
from benchmarks.figures import flags
from benchmarks.policy_scenarios import (
    ADVISED,
    AWAY_S,
    FLAKY_S,
    FULL,
    HEALTHY_S,
    NEVER_S,
    NONE,
    PLACES,
    PODS,
    POLICIES,
    RACK_NODES,
    SCENARIOS,
    Scenario,
    hang_limit_s,
)
from inplace import examples
from inplace.common.jobset import conditions
from inplace.common.kube import resources
from inplace.common.kube.client import MERGE_PATCH
from inplace.common.wire import names as wire
from inplace.common.wire.members import read_members
from inplace.simulator.cluster import virtual_time
from inplace.simulator.cluster.cluster import Cluster, virtual_cluster
from inplace.simulator.cluster.events import ClusterEvent, Kind
from inplace.simulator.cluster.timeline import own_status

CHECKPOINT_S: Final = 600.0
END_FACTOR: Final = 2.0  # of the work, and then it is not done
ENDS: Final = (Kind.FAULT, Kind.CONTAINER_KILLED, Kind.CONTAINER_EXITED, Kind.POD_REMOVED)
REPAIR_S: Final = 12 * 3600.0  # how long a node that a person drained is away
SEEDS: Final = 3
NAME: Final = "train"
CHART: Final = Path(__file__).parents[1] / "docs" / "policies.svg"
TO_END: Final = ("one flaky rank",)  # what no policy finishes late, and the advised one is to end
WORSE_MAX: Final = 1.02  # the advised policy's lost node-hours, against none
SLACK_NODE_HOURS: Final = 0.1  # where almost nothing is lost, a ratio says nothing


@dataclass(slots=True)
class Training:
    """How far the group is, as its workers' first steps and ends show it."""

    now_s: Callable[[], float]
    size: Callable[[], int] = lambda: PODS  # of the group that trains now
    kept_s: float = 0.0  # work up to the last checkpoint
    since_s: float | None = None  # when the last of this run's workers took its first step; None while it restarts
    stepped: set[str] = field(default_factory=set)
    pods: set[str] = field(default_factory=set)  # UIDs of all that a kubelet took in

    def observe(self, event: ClusterEvent) -> None:
        """Take in a first step, or the end of a worker."""
        if event.kind is Kind.POD_TAKEN:
            self.pods.add(event.uid)
        elif event.kind is Kind.FIRST_STEP:
            self.stepped.add(event.uid)
            if len(self.stepped) == self.size():
                self.since_s = event.time_s
        elif event.uid in self.stepped and event.kind in ENDS:  # a spare's end stops no training
            self.stop()

    def stop(self) -> None:
        """Fall back to the last checkpoint."""
        self.stepped.clear()
        self.kept_s = self.done_s // CHECKPOINT_S * CHECKPOINT_S
        self.since_s = None

    @property
    def new_pods(self) -> int:
        """Return how many Pods there were beyond the first of each rank."""
        return len(self.pods) - PODS

    @property
    def done_s(self) -> float:
        """Return the seconds of work so far; a smaller group takes longer for it."""
        return self.kept_s + (self.now_s() - self.since_s if self.since_s is not None else 0.0) * self.pace

    @property
    def pace(self) -> float:
        """Return the work of a second."""
        return self.size() / PODS


@dataclass(frozen=True, slots=True)
class Outcome:
    """One training: when it was over, whether it was done, the work that was kept, the epochs it took, the new Pods."""

    finished_s: float
    is_done: bool
    kept_s: float
    epochs: int
    new_pods: int
    spares: int = 0

    @property
    def lost_node_hours(self) -> float:
        """Return what the group's nodes did for nothing."""
        return ((PODS + self.spares) * self.finished_s - PODS * self.kept_s) / 3600


class Faults:
    """What happens next, and to which nodes: their workers die, or the nodes are cordoned, drained or gone."""

    def __init__(self, scenario: Scenario, rng: Random, now_s: Callable[[], float]) -> None:
        self._scenario = scenario
        self._rng = rng
        self._now_s = now_s
        self._at_s = {  # of what does not depend on the group's course
            "fail": now_s() + rng.expovariate(1 / scenario.rack_s),
            "drain": now_s() + rng.expovariate(1 / scenario.drain_s),
            "cordon": now_s() + scenario.cordon_at_s,
            "lose": now_s() + scenario.gone_at_s,
        }
        self._means_s = {"die": scenario.die_s, "turn": scenario.turn_s, "hang": scenario.hang_s}
        self._means_s = {what: mean_s for what, mean_s in self._means_s.items() if mean_s < NEVER_S}
        self._at_s |= {what: now_s() + rng.expovariate(1 / mean_s) for what, mean_s in self._means_s.items()}

    def draw(self, done_s: float, nodes: Sequence[str], flaky: Sequence[str]) -> tuple[float, str, list[str]]:
        """Return in how many seconds of this run the next one comes, what it is, and the nodes.

        `flaky` are the nodes that end their workers often now.

        Deaths on a node have no memory, so each run may draw anew.
        """
        found: list[tuple[float, str, list[str]]] = []
        for node in nodes:
            mean_s = FLAKY_S if node in flaky else HEALTHY_S
            found.append((self._rng.expovariate(1 / mean_s), "fail", [node]))
        if done_s <= self._scenario.crash_at_s:
            found.append((self._scenario.crash_at_s - done_s, "fail", [self._rng.choice(nodes)]))
        for what, at_s in self._at_s.items():
            struck = list(nodes)[: self._scenario.drained] if what == "drain" else _names(RACK_NODES)
            if what == "cordon":
                struck = _names(self._scenario.flaky)
            elif what in self._means_s:
                struck = [self._rng.choice(nodes)]
            found.append((max(0.0, at_s - self._now_s()), what, struck))
        return min(found)

    def struck(self, what: str, nodes: Sequence[str]) -> None:
        """Take note of what came."""
        if what in self._means_s:
            self._at_s[what] = self._now_s() + self._rng.expovariate(1 / self._means_s[what])
            return
        if len(nodes) > 1 or what != "fail":
            mean_s = {"fail": self._scenario.rack_s, "drain": self._scenario.drain_s}.get(what, NEVER_S)
            self._at_s[what] = self._now_s() + self._rng.expovariate(1 / mean_s)


async def train(scenario: Scenario, annotations: Mapping[str, str], seed: int, spares: int = 0) -> Outcome:
    """Run one training to its end."""
    cluster = virtual_cluster(nodes=PODS + spares + scenario.spares, pods_per_node=1, seed=seed)
    clock = cluster.clock
    async with cluster, asyncio.TaskGroup() as later:
        began_s = clock.monotonic_s()
        training = Training(clock.monotonic_s, lambda: _size(cluster))
        cluster.observers.add(training.observe)
        faults, bad = Faults(scenario, Random(f"{seed}/faults"), clock.monotonic_s), set[str]()
        await cluster.apply(documents_of(annotations, PODS + spares))
        end_s = began_s + END_FACTOR * scenario.work_s
        while (left_s := end_s - clock.monotonic_s()) > 0 and not has_failed(cluster):
            if training.since_s is None:
                await _wait(cluster, lambda: training.since_s is not None, left_s)
                continue
            work_s = (scenario.work_s - training.done_s) / training.pace
            placed = _placed(cluster)
            flaky = [
                *_names(scenario.flaky),
                *bad,
                *(node for node, pod in placed.items() if _rank(pod) < scenario.flaky_ranks),
            ]
            in_s, what, nodes = faults.draw(training.done_s, sorted(placed), flaky)
            await _wait(cluster, lambda: training.since_s is None, min(in_s, work_s, left_s))
            if training.since_s is not None and work_s <= in_s and training.done_s >= scenario.work_s - 1e-3:
                took_s = clock.monotonic_s() - began_s
                return Outcome(took_s, True, scenario.work_s, _epochs(cluster), training.new_pods, spares)
            if training.since_s is not None and in_s < left_s:
                faults.struck(what, nodes)
                if what == "turn":
                    bad.update(nodes)
                    later.create_task(_mend(cluster, nodes[0], bad, scenario.person_s))
                    continue
                if what == "hang":
                    training.stop()
                    await clock.sleep(min(hang_limit_s(annotations) or scenario.person_s, left_s))
                    what, nodes = "fail", sorted(placed)
                await _strike(cluster, what, nodes, later, scenario.away_s)
                if what == "lose":
                    training.stop()  # no event tells that these nodes have stopped
        training.stop()
        return Outcome(
            clock.monotonic_s() - began_s, False, training.kept_s, _epochs(cluster), training.new_pods, spares
        )


async def _mend(cluster: Cluster, node: str, bad: set[str], person_s: float) -> None:
    """Let a person drain a node that turned bad, and bring it back repaired."""
    await cluster.clock.sleep(person_s)
    async with asyncio.TaskGroup() as later:
        await _strike(cluster, "drain", [node], later, REPAIR_S)
    bad.discard(node)


async def _strike(
    cluster: Cluster, what: str, nodes: Sequence[str], later: asyncio.TaskGroup, away_s: float = AWAY_S
) -> None:
    """Let something happen to some nodes."""
    pods = [pod for node, pod in sorted(_placed(cluster).items()) if node in nodes]
    if what in ("cordon", "drain"):
        await _cordon(cluster, nodes, on=True)
    if what in ("fail", "die"):
        for pod in pods:
            with suppress(LookupError):  # a spare has no worker
                cluster.kill_worker("default", pod, supervised=True)
    elif what == "lose":
        for node in nodes:
            cluster.lose_node(node)
    elif what == "drain":
        for pod in pods:
            await cluster.client("user").delete(resources.PODS, "default", pod)

        async def bring_back() -> None:
            await cluster.clock.sleep(away_s)
            await _cordon(cluster, nodes, on=False)

        later.create_task(bring_back())


async def _cordon(cluster: Cluster, nodes: Sequence[str], *, on: bool) -> None:
    for node in nodes:
        body = {"spec": {"unschedulable": on or None}}
        await cluster.client("user").patch(resources.NODES, None, node, body, kind=MERGE_PATCH)


def documents_of(annotations: Mapping[str, str], pods: int = PODS) -> list[dict[str, Any]]:
    """Return the guarded example, for this group, under a policy."""
    documents = list(yaml.safe_load_all((Path(examples.__file__).parent / "train.yaml").read_text()))
    jobset = documents[-1]
    jobset["metadata"]["annotations"] = dict(annotations)
    jobset["spec"]["failurePolicy"]["maxRestarts"] = 100_000
    job = jobset["spec"]["replicatedJobs"][0]["template"]["spec"]
    job["parallelism"] = job["completions"] = pods
    worker = job["template"]["spec"]["containers"][0]
    worker["env"] = [entry for entry in worker["env"] if entry["name"] != "STEPS"]  # its end comes from here
    return documents


def has_failed(cluster: Cluster) -> bool:
    """Say whether the JobSet has failed."""
    found = cluster.jobset(NAME).get("status", {}).get("conditions", ())
    return any(one["type"] == conditions.FAILED and one["status"] == "True" for one in found)


async def _wait(cluster: Cluster, holds: Callable[[], bool], for_s: float) -> None:
    """Wait until something holds, the JobSet fails, or a time is over."""
    try:
        await cluster.until(lambda: holds() or has_failed(cluster), timeout_s=for_s)
    except TimeoutError:
        return


def _placed(cluster: Cluster) -> dict[str, str]:
    """Return the Pod of each node that has one."""
    alive = [pod for pod in cluster.pods() if pod["status"].get("phase") == "Running"]
    return {pod["spec"]["nodeName"]: pod["metadata"]["name"] for pod in alive}


def _rank(pod: str) -> int:
    return int(pod.rsplit("-", 2)[1])  # JOBSET-JOB-0-RANK-SUFFIX


def _names(nodes: int) -> list[str]:
    """Return the names of the first nodes."""
    return [f"node-{index}" for index in range(nodes)]


def _epochs(cluster: Cluster) -> int:
    return int(own_status(cluster.jobset(NAME)).get(wire.SYNCED_EPOCH, 0))


def _size(cluster: Cluster) -> int:
    """Return how many ranks train now."""
    members = read_members(own_status(cluster.jobset(NAME)).get(wire.MEMBERS_FIELD))
    return PODS if members is None else members.size


def measure(seeds: int, scenarios: Sequence[str], policies: Sequence[str]) -> list[dict[str, Any]]:
    """Return a row for each scenario and policy, and for each number of spares in a cluster that is full."""
    rows = []
    for scenario in scenarios:
        for policy in policies if scenario in SCENARIOS else PLACES:
            spares, members = PLACES.get(policy, (0, ""))
            annotations = POLICIES.get(policy) or ({wire.MEMBERS: members} if members else {})
            faults = {**SCENARIOS, **FULL}[scenario]
            found = [virtual_time.run(train(faults, annotations, seed, spares)) for seed in range(seeds)]
            rows.append(
                {
                    "scenario": scenario,
                    "policy": policy,
                    "lost_node_hours": round(statistics.median(one.lost_node_hours for one in found), 2),
                    "finished_s": round(statistics.median(one.finished_s for one in found)),
                    "done": sum(one.is_done for one in found),
                    "epochs": statistics.median(one.epochs for one in found),
                    "new_pods": statistics.median(one.new_pods for one in found),
                }
            )
            print(line_of(rows[-1], seeds), file=sys.stderr, flush=True)
    return rows


def line_of(row: Mapping[str, Any], seeds: int) -> str:
    """Return one row for people."""
    done = f"{row['done']} of {seeds}"
    return (
        f"{row['scenario']:34}{row['policy']:19}{row['lost_node_hours']:>8.1f} node-hours lost"
        f"{row['finished_s'] / 3600:>7.2f} h   done {done}   {row['epochs']:.0f} epochs"
        f"   {row['new_pods']:.0f} new pods"
    )


def judged(rows: Sequence[Mapping[str, Any]]) -> list[tuple[str, bool]]:
    """Return the promise about the advised policy for each scenario, and whether it is kept."""
    found = {(row["scenario"], row["policy"]): row for row in rows}
    promises = []
    for scenario in SCENARIOS:
        none, advised = found.get((scenario, NONE)), found.get((scenario, ADVISED))
        if none is not None and advised is not None:
            lost, without = advised["lost_node_hours"], none["lost_node_hours"]
            words = f"{scenario}: {lost:.1f} node-hours lost with the advised policy, {without:.1f} without"
            is_done = advised["done"] >= none["done"] or scenario in TO_END
            is_kept = lost <= WORSE_MAX * without + SLACK_NODE_HOURS and is_done
            promises.append((f"{words}; done {advised['done']} and {none['done']} times", is_kept))
    return promises


def chart(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return the lost node-hours as a picture."""
    groups: dict[str, dict[str, float]] = {}
    for row in rows:
        if row["scenario"] in FULL:
            continue
        groups.setdefault(row["scenario"], {})[row["policy"]] = row["lost_node_hours"]
    return draw_bars(f"node-hours lost by {PODS} nodes, modelled: {Scenario().work_s / 3600:.0f} h of work", groups)


def main() -> int:
    """Print the rows; 1 if the advised policy is worse than none anywhere."""
    parser = flags(__doc__, seeds=SEEDS)
    parser.add_argument("--scenario", action="append", choices=(*SCENARIOS, *FULL), help="these alone; repeatable")
    parser.add_argument("--policy", action="append", choices=tuple(POLICIES), help="these alone; repeatable")
    parser.add_argument("--chart", nargs="?", const=CHART, type=Path, help=f"write an SVG ({CHART.name} in docs/)")
    options = parser.parse_args()
    rows = measure(options.seeds, options.scenario or (*SCENARIOS, *FULL), options.policy or tuple(POLICIES))
    promises = judged(rows)
    for words, is_kept in promises:
        print(f"{'reached' if is_kept else 'MISSED':8} {words}", file=sys.stderr)
    if options.chart is not None:
        options.chart.write_text(chart(rows))
    if options.json:
        print(json.dumps({"kind": "modelled", "seeds": options.seeds, "rows": rows}))
    return int(not all(is_kept for _, is_kept in promises))


if __name__ == "__main__":
    sys.exit(main())
