"""Hunt each mutant in a process of its own, several at once."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from tests.mutants.mutant import ROOT, Mutant

SECONDS_MAX = 600.0  # for one mutant on two quiet cores: three times the duration of all runs of an uncaught one
TYPOS = ("NameError", "ImportError", "ModuleNotFoundError", "SyntaxError", "UnboundLocalError")

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
    directed: int = 100
    plans: int = 160
    seeds: int = 160


@dataclass(frozen=True, slots=True)
class Hunt:
    """The result of hunting one mutant.

    Args:
        runs: of the campaign.
        case: the case that caught it: a seed, a perturbed situation, or an undisturbed situation.
        rule: the property that broke; "" when none did.
        what: how the property broke, or why there is no result.
    """

    mutant: Mutant
    runs: int = 0
    seconds: float = 0.0
    case: Case | None = None
    rule: str = ""
    what: str = ""

    @property
    def is_caught(self) -> bool:
        """Return whether the campaign caught the mutant."""
        return bool(self.rule)


class BrokenMutantError(Exception):
    """A mutant cannot run: it has a typing error."""


def hunt_all(mutants: Iterable[Mutant], bounds: Bounds, processes: int) -> Iterator[Hunt]:
    """Hunt every mutant; yield each result as it is finished."""
    with ThreadPoolExecutor(processes) as pool:
        for done in as_completed([pool.submit(hunt, mutant, bounds) for mutant in mutants]):
            yield done.result()


def hunt(mutant: Mutant, bounds: Bounds, cases: Sequence[Case] = (), seconds_max: float = SECONDS_MAX) -> Hunt:
    """Run the campaign until it breaks a property, or just the given cases.

    Raises:
        StaleMutantError: the mutant does not fit the code.
        BrokenMutantError: its process failed for a reason that no campaign decides.
    """
    began_s = time.monotonic()
    wanted = {"cases": list(cases), "bounds": asdict(bounds), "faults": mutant.faults}
    with tempfile.TemporaryDirectory(prefix="mutant-") as folder:
        mutant.plant(Path(folder))
        command = [sys.executable, "-P", str(ROOT / "tests/mutants/hunt.py"), folder, json.dumps(wanted)]
        try:
            answer = _ask(command, folder, seconds_max)
        except subprocess.TimeoutExpired:
            return Hunt(mutant, seconds=seconds_max, what=f"no answer within {seconds_max:g} s")
    found = replace(Hunt(mutant, seconds=time.monotonic() - began_s), **answer)
    if any(typo in found.what for typo in TYPOS):
        raise BrokenMutantError(f"{mutant.name}: {found.what}")
    return found


def _ask(command: Sequence[str], folder: str, seconds_max: float) -> dict[str, Any]:
    env = os.environ | {"PYTHONPATH": folder, "PYTHONDONTWRITEBYTECODE": "1"}
    ran = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, timeout=seconds_max, check=False)
    if ran.returncode != 0:
        raise BrokenMutantError(f"{' '.join(command)} ended with {ran.returncode}:\n{ran.stderr[-3000:]}")
    answer: dict[str, Any] = json.loads(ran.stdout.splitlines()[-1])
    return answer
