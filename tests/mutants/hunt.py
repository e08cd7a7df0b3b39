"""
Plant a mutant in this process and disturb the code until a property breaks.

Ordinary seeds come first, then seeds of those faults without which a bug cannot show, then perturbed situations (one
of each kind before the second of any), then more ordinary seeds. With cases, only those are run.

As a program: `python -m tests.mutants.hunt NAME JSON`; the last line of the output says what was found.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import islice
from typing import Any

from inplace.simulator.campaign.catalogue import CATALOGUE
from inplace.simulator.campaign.judge import ViolationError
from inplace.simulator.campaign.run import run_seed
from inplace.simulator.campaign.sieve import SITUATIONS, Pattern, SievePlan, plans, run_plan
from tests.mistakes.mistake import planted
from tests.mutants.catalogue import AS_IT_IS, MUTANTS
from tests.mutants.mutant import Mutant

STRIDE = 16  # plans of a situation between one that is run and the next, in each of as many rounds
TYPOS = (
    "NameError",
    "ImportError",
    "ModuleNotFoundError",
    "SyntaxError",
    "UnboundLocalError",
    "AttributeError",
    "TypeError",
)

Case = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Bounds:
    """How long to hunt one mutant.

    Args:
        seeds_first: ordinary seeds to begin with.
        directed: seeds of the faults that the mutant names.
        plans: perturbed situations at most.
        seeds: ordinary seeds at most, in all.
    """

    seeds_first: int = 20
    directed: int = 200
    plans: int = 160
    seeds: int = 160


@dataclass(frozen=True, slots=True)
class Found:
    """What the campaign found.

    Args:
        runs: of the campaign.
        case: the case that caught it: a seed, a perturbed situation, or an undisturbed situation.
        rule: the property that broke; "" when none did.
        what: how the property broke, or which mistakes were never called.
    """

    runs: int = 0
    case: Case | None = None
    rule: str = ""
    what: str = ""


class BrokenMutantError(Exception):
    """A mutant cannot run: it has a typing error."""


def disturb(mutant: Mutant, bounds: Bounds, cases: Sequence[Case] = ()) -> Found:
    """Run the campaign with a mutant until it breaks a property, or just the given cases.

    Raises:
        BrokenMutantError: a program failed by the mutant's own fault.
    """
    runs = 0
    with planted(*mutant.mistakes) as called:
        for case in cases or _cases(mutant.faults, bounds):
            runs += 1
            if (violation := _violation_in(case)) is not None:
                what = str(violation)
                if any(typo in what for typo in TYPOS):
                    raise BrokenMutantError(f"{mutant.name}: {what}")
                return Found(runs, case, violation.rule, what[:2000])
    idle = [str(mistake) for mistake in mutant.mistakes if mistake not in called]
    return Found(runs, what=f"nobody called {', '.join(idle)}" if idle else "")


def _cases(faults: Sequence[str], bounds: Bounds) -> Iterator[Case]:
    yield from ({"seed": seed} for seed in range(bounds.seeds_first))
    yield from ({"seed": seed, "faults": faults} for seed in range(bounds.directed if faults else 0))
    yield from islice(_plans(), bounds.plans)
    yield from ({"seed": seed} for seed in range(bounds.seeds_first, bounds.seeds))


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


def main(name: str, bounds: dict[str, int], cases: Sequence[Case]) -> None:
    """Print what is found of the mutant of this name."""
    (mutant,) = (mutant for mutant in (*MUTANTS, AS_IT_IS) if mutant.name == name)
    print(json.dumps(asdict(disturb(mutant, Bounds(**bounds), cases))))


if __name__ == "__main__":
    main(sys.argv[1], **json.loads(sys.argv[2]))
