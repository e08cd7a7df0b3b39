"""
Remember the last announced epoch where a container restart does not reach: a file on an emptyDir.

Why, beside PREVIOUS_EPOCH: kubelet evaluates that variable from its own view of the Pod, which may lag. If the lag
meets a stale watch cache, a restarted worker could rejoin the running epoch (tests/model: "kubelet passes an old
annotation"). A local file does not lag. Not fsynced: it has to survive the container, not the node.

Beside it, in EPOCH_FILE.ran, stands the last epoch in which the worker ran: no annotation says that, and without it a
restarted worker could join its own epoch again when the JobSet's status is lost (docs/adr/0007).

In EPOCH_FILE.failures stands what a new container is to know of the last one (docs/adr/0064), in EPOCH_FILE.saved what
this Pod told of the steps that it could load (`agent.progress.saved_steps`).
"""

from __future__ import annotations

from inplace.agent.shared_file import read_shared, write_shared
from inplace.common.bare.record import record
from inplace.common.bare.typed import Final
from inplace.common.protocol.bounds import INT32_MAX, STEP_MAX, decimal

FAILURES_MAX: Final = 1_000_000  # more are counted no further
_TEXT_BYTES_MAX: Final = 128  # the longest, of EPOCH_FILE.saved, has 108
_RUN: Final = ".ran"
_FAILURES: Final = ".failures"
_SAVED: Final = ".saved"


@record
class Failures:
    """How this Pod's worker failed.

    Args:
        count: so often in a row, without progress in between.
        best_step: the highest step of all its workers; None if none told one.
    """

    count: int = 0
    best_step: int | None = None


class EpochFile:
    """Small files beside `path`: two hold one decimal epoch each, the others a few words.

    Without a path nothing is kept: PREVIOUS_EPOCH has to do.
    """

    def __init__(self, path: str = "") -> None:
        self._path = path

    def remember(self, epoch: int) -> str | None:
        """Keep the epoch that is about to be announced; return what went wrong, None when it is kept."""
        return self._keep("", str(epoch))

    def remember_run(self, epoch: int) -> str | None:
        """Keep the epoch in which the worker is about to run; return as `remember`."""
        return self._keep(_RUN, str(epoch))

    def remember_failures(self, failures: Failures) -> str | None:
        """Keep how the worker failed; return as `remember`."""
        step = "-" if failures.best_step is None else str(failures.best_step)
        return self._keep(_FAILURES, f"{min(failures.count, FAILURES_MAX)} {step}")

    def recall_failures(self) -> tuple[Failures, str | None]:
        """Return (how the worker failed, what is wrong with the file); no failure when there is no file."""
        text, problem = self._text(_FAILURES)
        if text is None:
            return Failures(), problem
        count, _, step = text.partition(" ")
        failures, best = decimal(count, FAILURES_MAX), decimal(step, STEP_MAX)
        if failures is not None and (best is not None or step == "-"):
            return Failures(failures, best), None
        return Failures(), f"EPOCH_FILE: {self._path}{_FAILURES}: expected failures and a step, saw {text[:40]!r}"

    def remember_saved(self, text: str) -> str | None:
        """Keep what this Pod tells of its steps; return as `remember`."""
        return self._keep(_SAVED, text)

    def recall_saved(self) -> str | None:
        """Return what this Pod told of its steps; None where it told nothing, or the file cannot be read."""
        return self._text(_SAVED)[0]

    def recall(self) -> tuple[int | None, str | None]:
        """Return (announced epoch, what is wrong with the file); (None, None) when there is no file yet."""
        return self._epoch("")

    def recall_run(self) -> tuple[int | None, str | None]:
        """Return (epoch in which the worker ran, what is wrong with the file); (None, None) when it never ran."""
        return self._epoch(_RUN)

    def _keep(self, suffix: str, text: str) -> str | None:
        """Replace a file's content in one step, so that a crash leaves the old or the new text."""
        if not self._path:
            return None
        path = f"{self._path}{suffix}"
        try:
            write_shared(path, text.encode("ascii"))
        except OSError as error:
            return f"EPOCH_FILE: cannot write {path}: {error.strerror}"
        return None

    def _epoch(self, suffix: str) -> tuple[int | None, str | None]:
        text, problem = self._text(suffix)
        if text is None:
            return None, problem
        if epoch := decimal(text, INT32_MAX):
            return epoch, None
        return None, f"EPOCH_FILE: {self._path}{suffix}: expected an integer from 1 to {INT32_MAX}, saw {text[:40]!r}"

    def _text(self, suffix: str) -> tuple[str | None, str | None]:
        """Return (a file's text, what is wrong with the file); (None, None) when there is no file yet."""
        path = f"{self._path}{suffix}"
        try:
            return read_shared(path, _TEXT_BYTES_MAX).decode("ascii", "replace") if self._path else None, None
        except FileNotFoundError:
            return None, None
        except OSError as error:
            return None, f"EPOCH_FILE: cannot read {path}: {error.strerror}"
