"""
Plant a bug in this process and disturb the code until a property breaks.

Ordinary seeds come first, then seeds of those faults without which a bug cannot show, then perturbed situations (one
of each kind before the second of any), then more ordinary seeds. With cases, only those are run.

As a program: `python -m tests.planted.campaign NAME JSON`; the last line of the output says what was found.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from inplace.simulator.campaign.catalogue import CATALOGUE
from inplace.simulator.campaign.judge import ViolationError
from inplace.simulator.campaign.run import run_seed
from inplace.simulator.campaign.sieve import SITUATIONS, Pattern, SievePlan, plans, run_plan
from tests.planted.bug import Area, Bug, hunted
from tests.planted.catalogue import HUNTED
from tests.planted.mistake import planted

SECONDS_MAX = 600.0  # for one bug on two quiet cores: three times the duration of all runs of an uncaught one
AS_IT_IS = hunted("no mistake: the code as it is", Area.PROTOCOL, ())
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

ROOT = Path(__file__).resolve().parents[2]

Case = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Bounds:
    """How long to hunt one bug.

    Args:
        seeds_first: ordinary seeds to begin with.
        directed: seeds of the faults that the bug names.
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


class BrokenBugError(Exception):
    """A bug cannot run: it has a typing error."""


def disturb(bug: Bug, bounds: Bounds, cases: Sequence[Case] = ()) -> Found:
    """Run the campaign with a bug until it breaks a property, or just the given cases.

    Raises:
        BrokenBugError: a program failed by the bug's own fault.
    """
    runs = 0
    with planted(*bug.mistakes) as called:
        for case in cases or _cases(bug.faults or (), bounds):
            runs += 1
            if (violation := _violation_in(case)) is not None:
                what = str(violation)
                if any(typo in what for typo in TYPOS):
                    raise BrokenBugError(f"{bug.name}: {what}")
                return Found(runs, case, violation.rule, what[:2000])
    idle = [str(mistake) for mistake in bug.mistakes if mistake not in called]
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


@dataclass(frozen=True, slots=True)
class Hunt:
    """The result of hunting one bug."""

    bug: Bug
    found: Found
    seconds: float = 0.0

    @property
    def is_caught(self) -> bool:
        """Return whether the campaign caught the bug."""
        return bool(self.found.rule)


def hunt_all(bugs: Iterable[Bug], bounds: Bounds, processes: int) -> Iterator[Hunt]:
    """Hunt every bug; yield each result as it is finished."""
    with ThreadPoolExecutor(processes) as pool:
        for done in as_completed([pool.submit(hunt, bug, bounds) for bug in bugs]):
            yield done.result()


def hunt(bug: Bug, bounds: Bounds, cases: Sequence[Case] = (), seconds_max: float = SECONDS_MAX) -> Hunt:
    """Run the campaign with a bug of the catalogue until it breaks a property, or just the given cases.

    Raises:
        BrokenBugError: its process failed for a reason that no campaign decides.
    """
    began_s = time.monotonic()
    wanted = json.dumps({"bounds": asdict(bounds), "cases": list(cases)})
    command = [sys.executable, "-m", "tests.planted.campaign", bug.name, wanted]
    try:
        ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=seconds_max, check=False)
    except subprocess.TimeoutExpired:
        return Hunt(bug, Found(what=f"no answer within {seconds_max:g} s"), seconds_max)
    if ran.returncode != 0:
        raise BrokenBugError(f"{' '.join(command)} ended with {ran.returncode}:\n{ran.stderr[-3000:]}")
    return Hunt(bug, Found(**json.loads(ran.stdout.splitlines()[-1])), time.monotonic() - began_s)


def main(name: str, bounds: dict[str, int], cases: Sequence[Case]) -> None:
    """Print what is found of the bug of this name."""
    (bug,) = (bug for bug in (*HUNTED, AS_IT_IS) if bug.name == name)
    print(json.dumps(asdict(disturb(bug, Bounds(**bounds), cases))))


if __name__ == "__main__":
    main(sys.argv[1], **json.loads(sys.argv[2]))
