"""One seed is one run."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from inplace.simulator.campaign.run import run_seed

pytestmark = pytest.mark.slow

SEEDS = range(3)
CODE = (
    "import inplace.simulator.campaign.%s; from inplace.simulator.campaign.run import run_seed\n"
    f"for s in {SEEDS!r}: o = run_seed(s); print(o.hash, o.events, o.at_s)"
)


def hashes(hash_seed: str, first: str) -> str:
    """Run the seeds in a process of their own, which imports a module first."""
    env = os.environ | {"PYTHONHASHSEED": hash_seed}
    return subprocess.run(
        [sys.executable, "-c", CODE % first], env=env, check=True, capture_output=True, text=True
    ).stdout


def test_one_seed_gives_one_trace_in_every_process() -> None:
    """Two processes that hash strings, and order imports, differently write the same traces; seeds differ."""
    first, second = (hashes(*way) for way in (("1", "faults_users"), ("2", "spares")))
    assert first == second
    assert len(set(first.splitlines())) == len(SEEDS)


@pytest.mark.parametrize("seed", SEEDS)
def test_keeping_the_lines_changes_nothing(seed: int) -> None:
    """A trace that is printed is the trace that was hashed, twice in one process."""
    silent, told = run_seed(seed), run_seed(seed, keeps=True)
    assert (silent.hash, silent.events, silent.fired) == (told.hash, told.events, told.fired)
    assert len(told.lines) == told.events
    assert not silent.lines
