"""
Search the constants with which a herd of agents spreads its requests, over many modelled clusters.

    python -m benchmarks.herd_search [--json] [--seeds 2]

A coordinate descent from the agent's present constants: each constant in turn takes all its values while the others
stay, until nothing improves. Better means first: fewer 429s than REJECTED_MAX per agent in every scenario (the worst
one counts). Then: less time in all, as the mean over the scenarios of total / bound. The clusters have no deploy/apf;
with it agents use no slots. Agents count from their own start and have learned nothing (docs/adr/0061): these are the
constants of the default window. docs/adr/0038-herd-search.md has the results.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cache
from statistics import fmean
from typing import Any, Final

from benchmarks.model_group import Mode, Slots
from benchmarks.restart_model import Restarting
from inplace.simulator.profile import Profile, read_profile

REJECTED_MAX: Final = 0.2  # per agent: what issue and README promise
ROUNDS_MAX: Final = 4  # of the descent; it stood still after two
GRID: Final[dict[str, tuple[float, ...]]] = {
    "rate_per_s": (150, 200, 230, 250, 300, 450, 1_000),
    "window_s_max": (0, 1, 2, 3, 3.5, 5),
    "patches_per_start": (2, 3, 4, 6),
    "retry_base_s": (0.25, 0.5, 1, 2),
    "least_share": (0.1, 0.25, 0.5, 1),
}


@dataclass(frozen=True, slots=True)
class Scenario:
    """A group on a cluster that could be expected to carry it."""

    profile: str
    pods: int
    mode: Mode


CLUSTERS: Final = (
    ("small", 500),
    ("small", 1_000),
    ("single32", 1_000),
    ("big", 1_000),
    ("big", 5_000),
    ("slow-kubelets", 1_000),
    ("far", 1_000),
)
SCENARIOS: Final = (
    Scenario("lab-herd", 1_000, "sidecar"),  # what benchmarks.herd measures: two cores for 1,000 starts
    *(Scenario(profile, pods, mode) for profile, pods in CLUSTERS for mode in ("sidecar", "supervisor")),
)


@dataclass(frozen=True, slots=True)
class Judgement:
    """What one choice of constants brings.

    Args:
        rejected: 429s per agent in the worst scenario.
        above_bound: mean of total / bound.
    """

    slots: Slots
    rejected: float
    above_bound: float

    @property
    def order(self) -> tuple[float, float]:
        """Return the compared value: least is best."""
        return max(self.rejected, REJECTED_MAX), self.above_bound


def judge(slots: Slots, scenarios: Sequence[Scenario], seeds: int) -> Judgement:
    """Return the results of these constants."""
    profiles: dict[str, Profile] = {name: read_profile(name) for name in {each.profile for each in scenarios}}
    rejected, above = [], []
    for each in scenarios:
        for seed in range(1, seeds + 1):
            profile = profiles[each.profile]
            run = Restarting(profile, each.pods, each.mode, slots=slots, seed=seed, windows=None).run()
            rejected.append(run.rejected / each.pods)
            above.append(run.total_s / run.bound_s)
    return Judgement(slots, max(rejected), fmean(above))


def search(start: Slots, judged: Callable[[Slots], Judgement]) -> list[Judgement]:
    """Return the way from `start` to the best, each step better than the one before."""
    way = [judged(start)]
    for _ in range(ROUNDS_MAX):
        before = way[-1]
        for name, values in GRID.items():
            here = way[-1]
            best = min((judged(replace(here.slots, **{name: value})) for value in values), key=lambda each: each.order)
            if best.order < here.order:
                way.append(best)
        if way[-1] is before:
            break
    return way


def around(best: Slots, judged: Callable[[Slots], Judgement]) -> dict[str, list[Judgement]]:
    """Return what each constant's other values bring while the rest stands at the best: the table of the ADR."""
    return {name: [judged(replace(best, **{name: value})) for value in values] for name, values in GRID.items()}


def _json(judgement: Judgement) -> dict[str, Any]:
    return asdict(judgement.slots) | {
        "rejected": round(judgement.rejected, 3),
        "above_bound": round(judgement.above_bound, 3),
    }


def _line(judgement: Judgement) -> str:
    shown = _json(judgement)
    return "  ".join(f"{name} {value:g}" for name, value in shown.items())


def main() -> int:
    """Print the way to the best constants, and what each of their neighbours brings."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.herd_search", description=__doc__.split("\n\n")[0])
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument(
        "--seeds", type=int, default=2, choices=range(1, 100), metavar="1..99", help="runs of each scenario"
    )
    options = parser.parse_args()

    @cache
    def judged(slots: Slots) -> Judgement:
        found = judge(slots, SCENARIOS, options.seeds)
        print(_line(found), file=sys.stderr, flush=True)
        return found

    way = search(Slots(), judged)
    found = {
        "kind": "modelled",
        "scenarios": [asdict(each) for each in SCENARIOS],
        "seeds": options.seeds,
        "today": _json(way[0]),
        "best": _json(way[-1]),
        "around": {name: [_json(each) for each in some] for name, some in around(way[-1].slots, judged).items()},
    }
    if options.json:
        print(json.dumps(found))
        return 0
    what = "worst 429s per agent, mean total / bound"
    print(f"modelled, not measured: {len(SCENARIOS)} scenarios, {options.seeds} runs of each; {what}")
    print("\n".join(_line(each) for each in way))
    return 0


if __name__ == "__main__":
    sys.exit(main())
