"""
Ask the worker to save and end, before a planned stop: a small file with the epoch whose ranks are meant.

The ranks look for it at each step (`inplace.save_requested`) and agree among themselves at which step all save. So one
Pod whose worker is asked is enough. Who asks: an agent that reads it in the JobSet's status, and whoever gets SIGTERM
for the worker: the worker's parent then holds that signal back for a while. Loaded only where SAVE_WITHIN_S is set.
docs/adr/0069
"""

from __future__ import annotations

from _signal import SIGINT  # type: ignore[import-not-found]

from inplace.agent.shared_file import write_shared
from inplace.common.bare.typed import TYPE_CHECKING
from inplace.common.wire.stop_signal import signal_name

if TYPE_CHECKING:
    from inplace.agent.report.log import Log


class SaveRequests:
    """One Pod's requests, each epoch's once, and the signal that is held back while its worker saves.

    Args:
        path: the file INPLACE_SAVE_FILE; it lies where the worker may write, too, so no link of its is followed.
        within_s: how long the signal by which the Pod ends is held back from a worker that saves.

    Attributes:
        by_s: when the worker gets that signal, on the clock of whoever held it back; None: none is held.
        held: the signal that was held back last.
    """

    def __init__(self, path: str, within_s: float, log: Log) -> None:
        self.path = path
        self.within_s = within_s
        self._log = log
        self._asked = 0  # the newest epoch
        self.by_s: float | None = None
        self.held = 0

    def ask(self, epoch: int) -> bool:
        """Ask the worker of this epoch, unless it was asked; say whether it knows."""
        if epoch == self._asked:
            return True
        if problem := self.write(epoch):
            self._log.warning("save_not_requested", epoch=epoch, message=problem, then="the worker is stopped unsaved")
            return False
        self._asked = epoch
        self._log.info("save_requested", epoch=epoch)
        return True

    def write(self, epoch: int) -> str:
        """Replace the file in one step: an older epoch's request is over. Return what went wrong, "" if nothing did."""
        try:
            write_shared(self.path, b"%d\n" % epoch)
        except OSError as error:
            return f"cannot write {self.path}: {error.strerror}"
        return ""

    def hold(self, number: int, epoch: int, now_s: float) -> bool:
        """Ask the worker of this epoch to save because its Pod ends by this signal; say whether that is held back.

        A second one is not, and ends the time; neither is SIGINT, which a person types. Epoch 0: no worker could save.
        """
        if self.let_go() or number == SIGINT or not epoch or not self.ask(epoch):
            return False
        self._log.info("signalled", signal=signal_name(number), then=f"the worker has {self.within_s:g} s to save")
        self.by_s, self.held = now_s + self.within_s, number
        return True

    def let_go(self) -> bool:
        """End the time; say whether a signal was held back, which the caller now passes on."""
        was_held, self.by_s = self.by_s is not None, None
        return was_held
