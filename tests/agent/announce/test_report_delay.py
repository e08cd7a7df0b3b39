"""How many agents tell of a death when workers die together."""

from __future__ import annotations

import json
import subprocess
import sys
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inplace.agent.announce.report_delay import FEW, LEARNED_S, report_delay_s

TELL_MAX = 16
TOLD_MS_MAX = 300.0  # the window of 17 Pods is 0.17 s; kubelet looks once a second


@given(st.integers(1, 100_000), st.floats(0, 1, exclude_max=True))
def test_a_moment_lies_in_the_window(size: int, chance: float) -> None:
    """A small group tells at once; 100,000 Pods within 0.7 s."""
    delay_s = report_delay_s(size, chance)
    assert 0 <= delay_s <= 0.7
    assert size > FEW or delay_s == 0


@pytest.mark.parametrize("deaths_over_s", [0.0, 0.1, 1.0])
@pytest.mark.parametrize("size", [100, 1_000, 5_000])
def test_a_group_that_dies_together_does_not_tell_as_one(size: int, deaths_over_s: float) -> None:
    """All workers die within a second, at once or spread: until the group has learned of it, 16 tell at most."""
    tellers = []
    for seed in range(21):
        rng = Random(seed)
        moments_s = sorted(rng.uniform(0, deaths_over_s) + report_delay_s(size, rng.random()) for _ in range(size))
        tellers.append(sum(moment_s <= moments_s[0] + LEARNED_S for moment_s in moments_s))
    assert sorted(tellers)[10] <= TELL_MAX
    assert min(tellers) >= 1


@pytest.mark.parametrize("pods", [FEW, FEW + 1])
def test_a_lone_death_is_told_before_kubelet_sees_it(pods: int) -> None:
    """A guard in depth `containers` ends with its worker: the agent tells all the same, in a group of any size."""
    options = ["--runtime", "model", "--mode", "containers", "--pods", str(pods), "--failures", "3", "--json"]
    command = [sys.executable, "-m", "inplace.cli", "demo", *options]
    said = subprocess.run(command, check=True, capture_output=True, text=True, timeout=120).stdout
    told_ms = [restart["deprecate"] for restart in json.loads(said.splitlines()[-1])["restarts"]]
    assert max(told_ms) < TOLD_MS_MAX
