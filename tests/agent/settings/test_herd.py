"""Slots: the place of each Pod of a group in the window, and the request rate of the group."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inplace.agent.settings.herd import (
    GROUP_FREE,
    LATE_S,
    PATCHES_PER_START,
    RATE_PER_S,
    WINDOW_S,
    Herd,
    is_late,
    slot_s,
)
from inplace.common.bare.record import replace

ROUNDING_S = 1e-9  # rounding of floats; the smallest stratum of these tests is far wider
HERDS = st.builds(
    Herd,
    size=st.integers(1, 100_000),
    index=st.integers(0, 2**32),
    jitter=st.floats(0, 1, exclude_max=True),
    rate_per_s=st.integers(1, 100_000),
    window_s_max=st.floats(0, 300),
)


@given(herd=HERDS)
def test_a_slot_lies_inside_its_own_stratum(herd: Herd) -> None:
    """Slot i of N is in [i, i + 1) * window / N, and no window is longer than its bound."""
    stratum_s = herd.window_s / herd.size
    index = herd.index % herd.size
    assert 0.0 <= herd.window_s <= herd.window_s_max
    assert index * stratum_s - ROUNDING_S <= herd.start_slot_s <= (index + 1) * stratum_s + ROUNDING_S
    assert 0.0 <= herd.restart_slot_s <= herd.start_slot_s + ROUNDING_S


@given(herd=HERDS)
def test_the_spread_is_the_default_window_whatever_the_window(herd: Herd) -> None:
    """With slots switched off, agents still return after a lost server at the rate of a group of GROUP_LARGE."""
    assert herd.spread_s == min(WINDOW_S, max(0, herd.size - GROUP_FREE) / herd.rate_per_s)


@given(size=st.integers(1, GROUP_FREE))
def test_a_small_group_never_waits(size: int) -> None:
    """A group of up to GROUP_FREE Pods has no window."""
    assert Herd(size, size - 1, 0.99).start_slot_s == 0.0


def test_the_window_grows_from_nothing() -> None:
    """One Pod more than GROUP_FREE makes a window of less than a millisecond."""
    assert Herd(GROUP_FREE + 1, GROUP_FREE, 0.99).start_slot_s <= 1.0 / RATE_PER_S


def test_five_thousand_pods_arrive_evenly() -> None:
    """Each tenth of a second of the window has the same number of first requests, within two."""
    rng = Random(1)
    herd = Herd(5000, window_s_max=WINDOW_S)
    slots_s = [replace(herd, index=index, jitter=rng.random()).start_slot_s for index in range(5000)]
    per_tenth = [sum(1 for slot in slots_s if int(slot * 10) == tenth) for tenth in range(int(herd.window_s * 10))]
    assert len(per_tenth) == 15
    assert max(per_tenth) - min(per_tenth) <= 2


def test_the_longest_window_holds_any_group() -> None:
    """A million Pods still start within WINDOW_S."""
    assert Herd(10**6, 10**6 - 1).start_slot_s < WINDOW_S


def test_a_larger_group_has_a_shorter_window_down_to_a_share() -> None:
    """Beyond GROUP_LARGE the window shrinks as the group grows, without a jump, to LEAST_SHARE of the longest."""
    windows_s = [Herd(size).window_s for size in (1_000, 1_500, 2_000, 50_000)]
    assert windows_s == pytest.approx([2.8, 2.0, 1.5, 1.5], abs=0.01)


def test_supervisors_patches_are_spread_alike_whatever_the_size() -> None:
    """Kubelets do not spread supervisors' patches: a large group keeps a quarter of the whole window."""
    assert Herd(5_000, 4_999, 0.9).restart_slot_s == pytest.approx(WINDOW_S / PATCHES_PER_START, abs=0.01)
    assert Herd(50_000, 49_999, 0.9).restart_slot_s == pytest.approx(WINDOW_S / PATCHES_PER_START, abs=0.01)


def test_an_index_beyond_the_size_wraps_around() -> None:
    """After a resize the annotation may lag: a Pod above the old size takes another Pod's stratum in the window."""
    assert slot_s(7, 5, 10.0, 0.0) == slot_s(2, 5, 10.0, 0.0) == 4.0


def test_an_answer_is_late_beside_the_networks_own_time() -> None:
    """A far network alone makes no answer late."""
    assert not is_late(LATE_S / 2, 0.0)
    assert is_late(2 * LATE_S, 0.0)
    assert not is_late(2 * LATE_S, 2 * LATE_S)
