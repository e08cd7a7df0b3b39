"""
How long a window a large group's Pod keeps at its next restart, learned from its last ones.

An agent knows only itself. A 429 says that the server rejects, but most agents of an overloaded start get none, so "I
was not rejected" says little about the group. A slow answer says more: whoever asks while the server is loaded waits.
So three things are learned from a start:

* rejected (429 or 5xx before the lift): the next larger window, up to four times the default;
* slow (without a window, and the first answers came late): the default window, in this start already
  (`agent.announce.herd_start`) and in the next;
* neither, in a restart that the whole group was ordered to make: the next smaller window, down to none.

A smaller window is tried after CALM_LEAST calm restarts, and after twice as many each time the try was too early. A
start alone (a new Pod, a dead worker's own) teaches nothing when it is calm: the group was not there.

docs/adr/0010-herd.md has the evidence. Pure: a record in, a record out, and its text.
"""

from __future__ import annotations

from inplace.common.bare.record import record
from inplace.common.bare.typed import Final

LEVEL_DEFAULT: Final = 1
LEVEL_MAX: Final = 3
CALM_LEAST: Final = 2
CALM_MOST: Final = 16
SLOW_S: Final = 0.010  # an idle server's TLS handshake and list take 1 to 5 ms beside the network
ROUND_TRIPS: Final = 1.5  # of the network, which may vary by half
TEXT_BYTES_MAX: Final = 64
_VERSION: Final = "v1"


@record
class StartWindow:
    """One Pod's window, in steps.

    Args:
        level: 0: no window; 1: the default one; each further level has twice the window of the one before.
        calm_left: calm restarts until the next smaller window is tried.
        calm_asked: calm restarts that the last load asked for; 0 when no load was ever seen, or none is any more.
    """

    level: int = LEVEL_DEFAULT
    calm_left: int = 0
    calm_asked: int = 0

    @property
    def share(self) -> int:
        """Return the multiple of the default window."""
        return 1 << self.level - 1 if self.level else 0


DEFAULT: Final = StartWindow()


def learned(window: StartWindow, *, rejected: bool, slow: bool, calm: bool, least: int = 0) -> StartWindow:
    """Return the window of the next restart.

    Args:
        window: this start's.
        rejected: a request of this start was rejected.
        slow: this start had no window, and an answer came late.
        calm: the whole group started, and this Pod announced.
        least: the least level that this group may come down to.
    """
    if rejected or slow:
        asked = min(CALM_MOST, max(CALM_LEAST, 2 * window.calm_asked))
        return StartWindow(min(LEVEL_MAX, window.level + 1), asked, asked)
    if not calm:
        return window
    if window.calm_left:
        return StartWindow(window.level, window.calm_left - 1, window.calm_asked)
    if window.level <= least:
        return StartWindow(window.level)
    level = window.level - 1
    return StartWindow(level, CALM_LEAST if level else 0, window.calm_asked)


def is_slow(waited_s: float, round_trip_s: float) -> bool:
    """Say whether an answer for which the agent waited so long came late, on a network with this round trip."""
    return waited_s > SLOW_S + ROUND_TRIPS * round_trip_s


def text_of(window: StartWindow, ordered_s: float | None) -> str:
    """Return what is kept: the window, and when the group was ordered to restart, on the clock of the machine."""
    moment = "-" if ordered_s is None else f"{ordered_s:.3f}"
    return f"{_VERSION} {window.level} {window.calm_left} {window.calm_asked} {moment}"


def parse_text(text: str) -> tuple[StartWindow, float | None]:
    """Return what `text_of` was given.

    Raises:
        ValueError: it is no such text; the message says what was expected.
    """
    expected = f"{_VERSION}, a level from 0 to {LEVEL_MAX}, two numbers from 0 to {CALM_MOST}, and seconds or -"
    words = text.split(" ") if text.isascii() and len(text) <= TEXT_BYTES_MAX else []
    if len(words) != 5 or words[0] != _VERSION:
        raise ValueError(f"expected {expected}, saw {text[:TEXT_BYTES_MAX]!r}")
    numbers = [_number(word, most) for word, most in zip(words[1:4], (LEVEL_MAX, CALM_MOST, CALM_MOST), strict=True)]
    if None in numbers or (words[4] != "-" and not words[4].replace(".", "", 1).isdigit()):
        raise ValueError(f"expected {expected}, saw {text!r}")
    level, calm_left, calm_asked = (number or 0 for number in numbers)
    return StartWindow(level, calm_left, calm_asked), None if words[4] == "-" else float(words[4])


def _number(word: str, most: int) -> int | None:
    return int(word) if word.isdigit() and len(word) <= 2 and int(word) <= most else None
