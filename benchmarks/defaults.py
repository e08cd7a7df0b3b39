"""
Compare a JobSet without a setting with the best policy that somebody could set, over mixes of failures from reports.

The model is that of benchmarks.policies: real controller and agents, modelled workers, virtual time. A mix has the rate
of failures that a report gives for its whole group, and the kinds by what helps:

    died     a restart helps: software, network, a transient error of a GPU
    turned   the node has to be left: until then it ends its worker every ten minutes, in the mean
    away     the node goes for half an hour: maintenance, power, another component of the host
    hung     no step comes any more

A person is assumed to act after an hour: he drains a node that turned bad, or restarts a group that hangs. Slow nodes
are not modelled. The effective training time is the work divided by the whole time.

Healthy jobs are modelled with evaluations, saves and compilations between steps: how often the learned limit tells of a
hang that is none. By default nothing restarts because of it. With `restart-on: stall` a pause ends in restarts, each of
which doubles the limit, until the limit is longer than the pause.

    python -m benchmarks.defaults --json
"""

from __future__ import annotations

import json
import statistics
import sys
from collections.abc import Iterator, Mapping
from random import Random
from typing import Any, Final

from benchmarks.figures import flags
from benchmarks.policies import train
from benchmarks.policy_scenarios import NEVER_S, PODS, Scenario
from inplace.common.protocol.learned_limit import LIMIT_S_MAX, STEPS_MIN, LearnedLimits
from inplace.common.wire import names as wire
from inplace.simulator.cluster import virtual_time

HOUR_S: Final = 3600.0
WORK_S: Final = 12 * HOUR_S
AWAY_S: Final = 1800.0
SPARE_NODES: Final = 8  # that no Pod needs: enough for the nodes that are away
POINTS_MAX: Final = 1.0  # of effective training time, that no setting may lie below the best policy
HEALTHY_S: Final = 6 * HOUR_S
HEALTHY_SEEDS: Final = 10_000
DEFAULT: Final = "no setting"
SPARES: Final = 2


def mix(every_h: float, **shares: float) -> Scenario:
    """Return a mix: hours between two failures of the group, and the share of each kind."""

    def mean_s(kind: str) -> float:
        return every_h * HOUR_S / shares[kind] if shares.get(kind) else NEVER_S

    return Scenario(
        die_s=mean_s("died"),
        turn_s=mean_s("turned"),
        drain_s=mean_s("away"),
        hang_s=mean_s("hung"),
        drained=1,
        away_s=AWAY_S,
        spares=SPARE_NODES,
        work_s=WORK_S,
    )


MIXES: Final[Mapping[str, Scenario]] = {
    # https://arxiv.org/abs/2407.21783, table 5: 419 in 54 days. turned: GPU, HBM3, NIC (227); away: host (46); hung: 7.
    "Llama 3, 16,384 GPUs": mix(3.09, died=0.33, turned=0.54, away=0.11, hung=0.02),
    # https://arxiv.org/abs/2410.21680: 7.9 h between failures of 1,024 GPUs and 1.8 h of 16,384; "lemon nodes": 13 %.
    "RSC, 1,024 GPUs": mix(7.9, died=0.82, turned=0.13, away=0.05),
    "RSC, 16,384 GPUs": mix(1.8, died=0.82, turned=0.13, away=0.05),
    # https://arxiv.org/abs/2605.09370: 224 sessions in 73 days; three of 63 nodes have half of all exclusions.
    "504 GPUs": mix(7.8, died=0.5, turned=0.5),
    # https://glennklockwood.com/garden/component-reliability: 205 in 4 months; 54 % need another host or cable.
    "Crusoe, 1,600 GPUs": mix(14.3, died=0.41, turned=0.54, away=0.05),
    # No report: one kind alone, often.
    "a wave of deaths": mix(1.0, died=1.0),
    "a wave of hangs": mix(6.0, hung=1.0),
    "a wave of bad nodes": mix(6.0, turned=1.0),
}
POLICIES: Final[Mapping[str, tuple[int, Mapping[str, str]]]] = {
    DEFAULT: (0, {}),
    f"no setting but {SPARES} spares": (SPARES, {wire.MEMBERS: f"max={PODS}"}),
    "hangs, bad nodes": (0, {wire.STALL: "120", wire.NODES: "failures=2,within=3600,percent=30"}),
}
"""Spare Pods, and the annotations of the JobSet."""


def measure(seeds: int) -> Iterator[dict[str, Any]]:
    """Yield a row for each mix and policy: the median of the seeds' effective training time, in percent."""
    for name, scenario in MIXES.items():
        for policy, (spares, said) in POLICIES.items():
            found = [virtual_time.run(train(scenario, said, seed, spares)) for seed in range(seeds)]
            ratios = [100 * one.kept_s / one.finished_s for one in found]
            row = {
                "mix": name,
                "policy": policy,
                "effective_percent": round(statistics.median(ratios), 2),
                "done": sum(one.is_done for one in found),
                "epochs": statistics.median(one.epochs for one in found),
                "new_pods": statistics.median(one.new_pods - spares for one in found),
            }
            print(
                f"{name:24}{policy:26}{row['effective_percent']:7.2f} %  done {row['done']} of {seeds}  "
                f"{row['epochs']:.0f} epochs, {row['new_pods']:.0f} new pods",
                file=sys.stderr,
                flush=True,
            )
            yield row


def gaps(rows: list[dict[str, Any]]) -> dict[str, float]:
    """Return by mix how many points a JobSet without a setting lies below the best policy that needs no spare."""
    found: dict[str, dict[str, float]] = {}
    for row in rows:
        if not POLICIES[row["policy"]][0]:
            found.setdefault(row["mix"], {})[row["policy"]] = row["effective_percent"]
    return {name: round(max(of.values()) - of[DEFAULT], 2) for name, of in found.items()}


def told_of_healthy(seed: int, *, acts: bool = False) -> tuple[int, int]:
    """Return how often one healthy Pod is told of as hanging in HEALTHY_S, and how many kinds of pauses it has.

    Where somebody acts, how often it restarts instead: the work up to a pause is not played again.

    A pause (an evaluation, a save, a compilation) comes every so many steps and takes 30 s to 40 min, a third more or
    less each time. Steps without one are the same but for a third, so that only the pauses have to be played.
    """
    rng = Random(seed)
    step_s = rng.choice([0.5, 2.0, 10.0, 45.0])
    pauses = [(rng.randint(30, 2_000), rng.uniform(30.0, 2_400.0)) for _ in range(rng.randint(0, 3))]
    learned, told, number, paused_s = LearnedLimits(), 0, 0, 0.0
    for _ in range(STEPS_MIN):
        learned = learned.with_step(step_s * rng.uniform(0.7, 1.3))
    while pauses and number * step_s + paused_s < HEALTHY_S:
        number = min((number // every + 1) * every for every, _ in pauses)
        long_s = sum(long_s * rng.uniform(0.7, 1.3) for every, long_s in pauses if number % every == 0)
        while (limit_s := learned.limit_s or long_s + step_s) < long_s + step_s:
            told += 1
            if not acts or limit_s >= LIMIT_S_MAX:  # beyond it such a job restarts for ever: once is counted
                break
            learned = learned.with_end(limit_s)
        learned = learned.with_step(long_s + step_s)
        paused_s += long_s
    return told, len(pauses)


def healthy(seeds: int) -> dict[str, Any]:
    """Return how often healthy Pods are told of, and what would restart."""
    found = [told_of_healthy(seed) for seed in range(seeds)]
    told = sum(count for count, _ in found)
    acted = sum(told_of_healthy(seed, acts=True)[0] for seed in range(seeds))
    return {
        "seeds": seeds,
        "hours": round(seeds * HEALTHY_S / HOUR_S),
        "restarts": 0,  # a notice of kind stall restarts nothing without restart-on
        "told": told,
        "told_per_1000_h": round(1000 * told / (seeds * HEALTHY_S / HOUR_S), 1),
        "restarts_per_1000_h_with_restart_on": round(1000 * acted / (seeds * HEALTHY_S / HOUR_S), 1),
        "told_more_than_once_a_kind": sum(count > kinds for count, kinds in found),
    }


def main() -> int:
    """Print the rows; 1 where a JobSet without a setting is too far below the best policy."""
    parser = flags(__doc__, seeds=2, healthy=HEALTHY_SEEDS)
    options = parser.parse_args()
    pods = healthy(options.healthy)
    print(
        f"healthy: {pods['told']:,} told in {pods['hours']:,} h, {pods['told_per_1000_h']} in 1,000 h; by default none "
        f"restarts, with restart-on {pods['restarts_per_1000_h_with_restart_on']} in 1,000 h; "
        f"{pods['told_more_than_once_a_kind']} of {pods['seeds']:,} were told of more often than they have "
        "kinds of pauses",
        file=sys.stderr,
    )
    rows = list(measure(options.seeds))
    found = gaps(rows)
    for name, points in found.items():
        is_kept = points <= POINTS_MAX
        print(
            f"{'reached' if is_kept else 'MISSED':8}{name}: {points:.2f} points below the best policy", file=sys.stderr
        )
    if options.json:
        print(json.dumps({"kind": "modelled", "seeds": options.seeds, "rows": rows, "gaps": found, "healthy": pods}))
    return int(any(points > POINTS_MAX for points in found.values()))


if __name__ == "__main__":
    sys.exit(main())
