"""What an agent asks of this Pod's worker: a process tree below it, or guards in other containers."""

from __future__ import annotations

from inplace.common.bare.typed import TYPE_CHECKING, Final, Mapping

if TYPE_CHECKING:
    from inplace.common.protocol.stall import Stalled

STUCK_S: Final = 30.0  # a process that survives SIGKILL this long hangs in a driver; only a new Pod helps


class WorkerStuckError(Exception):
    """Processes of the worker survive SIGKILL."""


class WorkerLostError(Exception):
    """The worker's container is gone, so that only kubelet can start it again."""


class Worker:
    """The worker of this Pod, run after run; where a kind of worker says nothing else, this is its answer."""

    async def prepare(self) -> None:
        """Get ready to see processes end; called once, BEFORE the first start."""

    async def until_fit(self, epoch: int) -> None:
        """Return when this Pod may announce an epoch: nothing of a worker is left, and its check is over.

        Raises:
            UnfitError: it may not.
            WorkerStuckError: something of the check survived SIGKILL for STUCK_S seconds.
        """

    def start(self, env: Mapping[str, str]) -> None:
        """Start a run, or release the process that is held for it; nothing of the last one may be left.

        `env` is added to the environment. A run whose command cannot be executed ends at once.
        """

    async def exited(self) -> int:
        """Return the exit code of the main process once it is gone, 128 + n after signal n.

        Raises:
            WorkerLostError: it ran in another container, which is gone.
        """
        raise NotImplementedError

    async def gone(self) -> None:
        """Return when no process of the run is left; kill what is.

        Raises:
            WorkerStuckError: something survived SIGKILL for STUCK_S seconds.
            WorkerLostError: it ran in another container, which is gone.
        """

    def signal(self, number: int) -> None:
        """Send a signal to the main process's group, if it runs."""

    async def examine(self, stalled: Stalled, pid: int | None) -> str | None:  # noqa: ARG002
        """Run the command of --on-stall, for a bounded time.

        Args:
            stalled: what was found.
            pid: of the silent rank as its file says; None if it says none.

        Returns:
            What went wrong, "" when nothing did; None: there is no command.
        """
        return None

    def take_stacks(self, request: int) -> None:
        """Let where the worker's ranks are be written to its log, at most each `common.wire.stacks.ANSWER_S_MIN`.

        Args:
            request: its id, or SILENCE.
        """

    def runs(self) -> bool:
        """Say whether the worker's silence means something: it was started, and its Pod does not end.

        It is only asked between start and end.
        """
        return True

    def completed(self) -> bool:
        """Say whether a part of the newest run ended by itself with exit code 0, and the run went on."""
        return False

    def grace_s(self) -> float | None:
        """Return the seconds from SIGTERM to SIGKILL that another process gives it; None if this one is its parent."""
        return None

    async def close(self) -> None:
        """End all there is, without waiting for it; for the end of this process."""
