"""The goodput that the controller computes is the truth of simulated trainings, within one percent."""

from __future__ import annotations

import pytest

from benchmarks.goodput import Outcome, train
from inplace.common.wire.phases import TEXT_BYTES_MAX

ERROR_MAX = 0.01


@pytest.mark.parametrize(
    "seed", [pytest.param(seed, marks=pytest.mark.slow) if seed >= 5 else seed for seed in range(200)]
)
def test_the_ratio_is_true_within_one_percent(seed: int) -> None:
    """Relative to the true ratio, whatever died or hung; lost steps are exact."""
    outcome: Outcome = train(seed)
    assert outcome.error <= ERROR_MAX
    assert outcome.goodput.lost_steps == outcome.lost_steps
    assert abs(outcome.goodput.lost_s - outcome.lost_s) <= ERROR_MAX * outcome.wall_s
    assert outcome.bytes_max <= TEXT_BYTES_MAX
