"""
The start of one process among its group's: when it may ask first, and what the next process learns from it.

`agent.announce.start_window` decides. Beside EPOCH_FILE, in EPOCH_FILE.window, stand the window and the moment at which
the group was ordered to restart: the start's one small file, read only in a group that has a window at all. The moment
is on CLOCK_BOOTTIME, which a container's restart does not reset. Of another boot it is in the future, or it costs this
one Pod a wrong slot inside its window.

A Pod without a window looks before it asks: its TLS handshake, and then its list, say how busy the server is. When an
answer comes late the start is put off to its slot of a first start. So a server that turned slow since the last restart
meets the head of the herd, and not all of it.

Without EPOCH_FILE nothing is learned, and slots count from the process's start.
"""

from __future__ import annotations

from inplace.agent.announce.herd import Herd
from inplace.agent.announce.start_window import (
    DEFAULT,
    TEXT_BYTES_MAX,
    StartWindow,
    is_slow,
    learned,
    parse_text,
    text_of,
)
from inplace.agent.shared_file import read_shared
from inplace.agent.start.epoch_file import write_file
from inplace.common.bare.typed import Final

ORDER_AGE_S_MAX: Final = 30.0  # an older order did not make this start; the slowest kubelets take some 10 s
_TICK_S: Final = 0.02  # the system knows process starts to 10 ms


class HerdStart:
    """Time one process's first request.

    Args:
        herd: this Pod's place in its group.
        started_s: when this process was made, on the machine's clock.
        path: of the file that survives the process; "" keeps nothing.

    Attributes:
        slot_s: seconds from `started_s` to the first request.
        slow: an answer came late.
    """

    def __init__(self, herd: Herd, started_s: float, path: str = "") -> None:
        self._herd = herd
        self._started_s = started_s
        self._path = path if herd.window_s > 0 else ""
        self._window = DEFAULT
        self._ordered_s: float | None = None
        self.slot_s = herd.start_slot_s
        self.slow = False

    def recall(self) -> str | None:
        """Take over what the last process left; return what is wrong with it."""
        if not self._path:
            return None
        try:
            window, ordered_s = parse_text(read_shared(self._path, TEXT_BYTES_MAX + 1).decode("ascii"))
        except FileNotFoundError:
            return None
        except (OSError, ValueError) as error:
            return f"EPOCH_FILE.window: {self._path}: {error}"
        least = self._herd.least_level  # of a group that may have grown meanwhile
        self._window = window if window.level >= least else StartWindow(least)
        if ordered_s is not None and -_TICK_S <= self._started_s - ordered_s <= ORDER_AGE_S_MAX:
            self._ordered_s = ordered_s
        share = self._window.share
        if self._ordered_s is None:
            self.slot_s = share * self._herd.start_slot_s
        else:
            self.slot_s = max(0.0, self._ordered_s + share * self._herd.ordered_slot_s - self._started_s)
        return None

    def put_off(self, waited_s: float, round_trip_s: float) -> bool:
        """Take note of an answer for which the agent waited so long; say whether to go on later, at `slot_s`.

        That slot counts from the process's start: it comes after what kubelets spread, and is the safest there is.
        """
        if not self._path or self._window.level > 0 or not is_slow(waited_s, round_trip_s):
            return False
        self.slow = True
        self.slot_s = self._herd.start_slot_s
        return self.slot_s > 0

    def leave(self, now_s: float, *, announced: bool, rejected: bool, ordered: bool) -> str | None:
        """Keep what the next process needs; return what went wrong.

        Args:
            now_s: on the machine's clock.
            announced: the server took this start's announcement.
            rejected: it rejected a request of this start.
            ordered: this process ends because the group restarts.
        """
        if not self._path:
            return None
        calm = announced and self._ordered_s is not None
        least = self._herd.least_level
        window = learned(self._window, rejected=rejected, slow=self.slow, calm=calm, least=least)
        return write_file(self._path, text_of(window, now_s if ordered else None))
