"""One seed is one run."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from inplace.simulator.campaign.catalogue import CATALOGUE
from inplace.simulator.campaign.run import run_seed

pytestmark = pytest.mark.slow

SEEDS = range(3)
CODE = (
    "from inplace.simulator.campaign.run import run_seed\n"
    f"for s in {SEEDS!r}: o = run_seed(s); print(o.hash, o.events, o.at_s)"
)


def hashes(hash_seed: str) -> str:
    """Run the seeds in a process of their own."""
    env = os.environ | {"PYTHONHASHSEED": hash_seed}
    return subprocess.run([sys.executable, "-c", CODE], env=env, check=True, capture_output=True, text=True).stdout


def test_one_seed_gives_one_trace_in_every_process() -> None:
    """Two processes that hash strings differently write the same traces, and different seeds differ."""
    first, second = hashes("1"), hashes("2")
    assert first == second
    assert len(set(first.splitlines())) == len(SEEDS)


@pytest.mark.parametrize("seed", SEEDS)
def test_keeping_the_lines_changes_nothing(seed: int) -> None:
    """A trace that is printed is the trace that was hashed, twice in one process."""
    silent, told = run_seed(seed), run_seed(seed, keeps=True)
    assert (silent.hash, silent.events, silent.fired) == (told.hash, told.events, told.fired)
    assert len(told.lines) == told.events
    assert not silent.lines


def test_the_catalogue_has_one_order() -> None:
    """Children of a soak import other modules first: their seeds once meant other faults than a replay's."""
    code = (
        "import inplace.simulator.campaign.faults_users, inplace.simulator.campaign.spares\n"
        "from inplace.simulator.campaign.catalogue import CATALOGUE; print(*CATALOGUE)"
    )
    told = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout
    assert told.split() == list(CATALOGUE)
