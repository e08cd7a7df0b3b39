"""Hunt each mutant in a process of its own, several at once."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import asdict, dataclass

from tests.mutants.hunt import Bounds, BrokenMutantError, Case, Found
from tests.mutants.mutant import ROOT, Mutant

SECONDS_MAX = 600.0  # for one mutant on two quiet cores: three times the duration of all runs of an uncaught one


@dataclass(frozen=True, slots=True)
class Hunt:
    """The result of hunting one mutant."""

    mutant: Mutant
    found: Found
    seconds: float = 0.0

    @property
    def is_caught(self) -> bool:
        """Return whether the campaign caught the mutant."""
        return bool(self.found.rule)


def hunt_all(mutants: Iterable[Mutant], bounds: Bounds, processes: int) -> Iterator[Hunt]:
    """Hunt every mutant; yield each result as it is finished."""
    with ThreadPoolExecutor(processes) as pool:
        for done in as_completed([pool.submit(hunt, mutant, bounds) for mutant in mutants]):
            yield done.result()


def hunt(mutant: Mutant, bounds: Bounds, cases: Sequence[Case] = (), seconds_max: float = SECONDS_MAX) -> Hunt:
    """Run the campaign with a mutant of the catalogue until it breaks a property, or just the given cases.

    Raises:
        BrokenMutantError: its process failed for a reason that no campaign decides.
    """
    began_s = time.monotonic()
    wanted = json.dumps({"bounds": asdict(bounds), "cases": list(cases)})
    command = [sys.executable, "-m", "tests.mutants.hunt", mutant.name, wanted]
    try:
        ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=seconds_max, check=False)
    except subprocess.TimeoutExpired:
        return Hunt(mutant, Found(what=f"no answer within {seconds_max:g} s"), seconds_max)
    if ran.returncode != 0:
        raise BrokenMutantError(f"{' '.join(command)} ended with {ran.returncode}:\n{ran.stderr[-3000:]}")
    return Hunt(mutant, Found(**json.loads(ran.stdout.splitlines()[-1])), time.monotonic() - began_s)
