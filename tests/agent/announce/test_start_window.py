"""What a Pod's starts teach it about its window: up at the first rejection, down while all is calm."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inplace.agent.announce.start_window import (
    CALM_LEAST,
    CALM_MOST,
    DEFAULT,
    LEVEL_DEFAULT,
    LEVEL_MAX,
    ROUND_TRIPS,
    SLOW_S,
    TEXT_BYTES_MAX,
    StartWindow,
    is_slow,
    learned,
    parse_text,
    text_of,
)

WINDOWS = st.builds(
    StartWindow, st.integers(0, LEVEL_MAX), st.integers(0, CALM_MOST), st.sampled_from((0, 2, 4, 8, CALM_MOST))
)
LEAST = st.sampled_from((0, LEVEL_DEFAULT))


def calmed(window: StartWindow, least: int = 0) -> StartWindow:
    """Return the window after a calm restart."""
    return learned(window, rejected=False, slow=False, calm=True, least=least)


@given(window=WINDOWS, rejected=st.booleans(), slow=st.booleans(), calm=st.booleans(), least=LEAST)
def test_a_window_moves_by_one_step(window: StartWindow, rejected: bool, slow: bool, calm: bool, least: int) -> None:
    """Up when a request was rejected or late, down or as it was otherwise, and never out of its bounds."""
    after = learned(window, rejected=rejected, slow=slow, calm=calm, least=least)
    if rejected or slow:
        assert after.level == min(LEVEL_MAX, window.level + 1)
    elif calm:
        assert min(window.level, max(least, window.level - 1)) <= after.level <= window.level
    else:
        assert after == window
    assert 0 <= after.level <= LEVEL_MAX
    assert 0 <= after.calm_left <= max(window.calm_left, after.calm_asked, CALM_LEAST)
    assert after.calm_asked <= CALM_MOST


@given(window=WINDOWS, least=LEAST)
def test_calm_restarts_bring_every_window_down(window: StartWindow, least: int) -> None:
    """After at most CALM_MOST and a few more it is the least, stays there, and a load long past is forgotten."""
    for _ in range(CALM_MOST + 2 * LEVEL_MAX * (CALM_LEAST + 1)):
        window = calmed(window, least)
    assert window == StartWindow(min(least, window.level))


def test_a_first_calm_restart_is_enough() -> None:
    """A Pod that never saw a load gives its window up after one restart of the whole group."""
    assert calmed(DEFAULT) == StartWindow(0)
    assert calmed(DEFAULT, least=LEVEL_DEFAULT) == DEFAULT


def test_each_load_asks_for_twice_as_many_calm_restarts() -> None:
    """A server that needs the window is tried without it after 2, 4, 8 and then 16 calm restarts."""
    window, tried_after = StartWindow(0), []
    for _ in range(5):
        window, count = learned(window, rejected=False, slow=True, calm=True), 0
        assert window.level == LEVEL_DEFAULT
        while window.level:
            window, count = calmed(window), count + 1
        tried_after.append(count - 1)
    assert tried_after == [2, 4, 8, 16, 16]


def test_a_window_doubles_with_each_level() -> None:
    """From none over the default to four times the default."""
    assert [StartWindow(level).share for level in range(LEVEL_MAX + 1)] == [0, 1, 2, 4]


@given(round_trip_s=st.floats(0, 1), waited_s=st.floats(0, 10))
def test_what_the_network_takes_is_not_slow(round_trip_s: float, waited_s: float) -> None:
    """An answer is late beyond one and a half round trips and SLOW_S."""
    assert is_slow(waited_s, round_trip_s) == (waited_s > SLOW_S + ROUND_TRIPS * round_trip_s)
    assert not is_slow(round_trip_s, round_trip_s)


@given(window=WINDOWS, ordered_s=st.none() | st.floats(0, 1e10))
def test_what_is_kept_comes_back(window: StartWindow, ordered_s: float | None) -> None:
    """The text has a bound, and says the same, with the moment to a millisecond."""
    text = text_of(window, ordered_s)
    assert len(text) <= TEXT_BYTES_MAX
    found, moment_s = parse_text(text)
    assert found == window
    assert moment_s == (None if ordered_s is None else pytest.approx(ordered_s, abs=0.001))


@pytest.mark.parametrize(
    "text",
    [
        *(
            "",
            "v1",
            "v2 1 0 0 -",
            "v1 1 0 0",
            "v1 1 0 0 - -",
            "v1 4 0 0 -",
            "v1 -1 0 0 -",
            "v1 1 17 0 -",
            "v1 1 0 99 -",
        ),
        *("v1 1 0 0 -5", "v1 1 0 0 nan", "v1 1 0 0 inf", "v1 1 0 0 1e9", "v1 1 0 0 1.2.3", "v1 1 0 0 .", "v1 1 0 0 "),
        *("v1 1 0 0 -\n", "v1  1 0 0 -", "v1 \u0663 0 0 -", "v1 1 0 0 \u0663", "v1 0001 0 0 -", "v1 1 0 0 " + "9" * 99),
    ],
)
def test_what_was_not_kept_so_is_refused(text: str) -> None:
    """Another version, a number out of range, a missing or extra word: the message says what was expected."""
    with pytest.raises(ValueError, match=r"^expected v1, a level from 0 to 3"):
        parse_text(text)


@given(text=st.text(max_size=80))
def test_no_text_is_believed_by_chance(text: str) -> None:
    """Whatever stands in the file, the parser ends with a window in its bounds or a ValueError."""
    try:
        window, _ = parse_text(text)
    except ValueError:
        return
    assert 0 <= window.level <= LEVEL_MAX
