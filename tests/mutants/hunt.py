"""
Disturb the code that Python finds first, until a property breaks; the last line of the output names the case.

Ordinary seeds come first, then seeds of those faults without which a bug cannot show, then perturbed situations (one
of each kind before the second of any), then more ordinary seeds.
With cases as arguments, only those are run.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from dataclasses import asdict
from itertools import islice
from pathlib import Path
from typing import Any

from inplace import common, simulator
from inplace.simulator.campaign.catalogue import CATALOGUE
from inplace.simulator.campaign.judge import ViolationError
from inplace.simulator.campaign.run import run_seed
from inplace.simulator.campaign.sieve import SITUATIONS, Pattern, SievePlan, plans, run_plan

STRIDE = 16  # plans of a situation between one that is run and the next, in each of as many rounds

Case = dict[str, Any]


def main(root: str, cases: list[Case], bounds: dict[str, int], faults: list[str]) -> None:
    """Hunt below `root`."""
    for package in (common, simulator):
        found = Path(str(package.__file__)).resolve()
        assert found.is_relative_to(Path(root).resolve()), f"expected the planted packages, imported {found}"
    runs = 0
    for case in cases or _cases(faults, **bounds):
        runs += 1
        if (violation := _violation_in(case)) is not None:
            print(json.dumps({"runs": runs, "case": case, "rule": violation.rule, "what": str(violation)[:2000]}))
            return
    print(json.dumps({"runs": runs}))


def _cases(faults: list[str], seeds_first: int, directed: int, plans: int, seeds: int) -> Iterator[Case]:
    yield from ({"seed": seed} for seed in range(seeds_first))
    yield from ({"seed": seed, "faults": faults} for seed in range(directed if faults else 0))
    yield from islice(_plans(), plans)
    yield from ({"seed": seed} for seed in range(seeds_first, seeds))


def _plans() -> Iterator[Case]:
    """Yield the plans of every situation, in rounds; a situation that fails undisturbed is a case of its own."""
    every: list[list[SievePlan]] = []
    for name in SITUATIONS:
        try:
            every.append(list(plans(name)))
        except ViolationError:
            yield {"situation": name}
    for start in range(STRIDE):
        for some in every:
            for plan in some[start::STRIDE]:
                yield {"plan": asdict(plan) | {"pattern": plan.pattern.name}}


def _violation_in(case: Case) -> ViolationError | None:
    if "seed" in case:
        faults = [CATALOGUE[name] for name in case.get("faults", ())]
        return run_seed(case["seed"], faults=faults or None).violation
    if "situation" in case:
        return SITUATIONS[case["situation"]].run().violation
    plan = case["plan"]
    return run_plan(SievePlan(**plan | {"pattern": Pattern[plan["pattern"]]})).violation


if __name__ == "__main__":
    main(sys.argv[1], **json.loads(sys.argv[2]))
