"""
What a guard runs beside its worker: `--before-announce` before there is one, `--on-stall` when it hangs, `--standby`.

A guard without any of them loads nothing of this.
"""

from __future__ import annotations

import select

from inplace.agent.worker.guard_check import GuardCheck
from inplace.agent.worker.guard_examination import Examination
from inplace.agent.worker.sweep import sweep
from inplace.common.bare.typed import TYPE_CHECKING, Callable, Mapping
from inplace.common.protocol.link import Examine, Examines, Message, Unfit
from inplace.common.wire.unfit import CODE

if TYPE_CHECKING:
    from inplace.agent.report.log import Log
    from inplace.agent.start.arguments import GuardOptions
    from inplace.agent.worker.guard_standby import GuardStandby


class Asides:
    """What one guard runs beside its worker; each is there or not.

    Args:
        tell: says something to the agent, if it is there.
        leave: ends the guard with an exit code.
        log: where events go.
    """

    def __init__(
        self,
        options: GuardOptions,
        env: Mapping[str, str],
        *,
        tell: Callable[[Message], None],
        leave: Callable[[int], None],
        log: Log,
    ) -> None:
        self._tell = tell
        self._leave = leave
        self._log = log
        self._command, self._env = options.command, env
        self._wants_standby = options.standby
        self._standby: GuardStandby | None = None
        self._check = GuardCheck(options, env, log, self.sweep) if options.before_announce else None
        self._examination = Examination(options.on_stall, env, log) if options.on_stall else None

    def words(self) -> list[Message]:
        """Return what a new agent is told."""
        examines: list[Message] = [Examines()] if self._examination is not None else []
        return [*examines, self._check.word()] if self._check is not None else examines

    def register(self, poll: select.poll) -> None:
        """Let the guard wait for output and messages."""
        if self._check is not None and self._check.descriptor >= 0:
            poll.register(self._check.descriptor, select.POLLIN)
        if self._standby is not None:
            self._standby.register(poll)

    def read(self, descriptor: int) -> None:
        """Take in what there is; the descriptor may be closed by now."""
        if self._check is not None and descriptor == self._check.descriptor:
            self._check.read()
        elif self._standby is not None:
            self._standby.read(descriptor)

    def dues_s(self) -> list[float | None]:
        """Return when `go_on` has something to do."""
        return [aside.by_s for aside in (self._check, self._examination, self._standby) if aside is not None]

    def go_on(self) -> None:
        """Do what is due: kill what has used up its time, and go on with the standby."""
        if self._standby is not None:
            self._standby.go_on()
        if self._examination is not None and self._examination.is_late():
            self._examination.cut("it did not end in time")
        if self._check is not None and self._check.is_late():
            self._go_on(joins=self._check.ended(None))

    def check(self) -> None:
        """Check this container BEFORE the Pod announces; the agent waits for the word `fit`."""
        if self._check is not None:
            self._go_on(joins=self._check.begin())

    def examine(self, asked: Examine, main: int, epoch: int) -> None:
        """Look at a worker that hangs, with process id `main`, 0 if it ends; the agent waits for the end of that."""
        aside = self._examination
        if not main or aside is None or aside.pid or not aside.begin(asked, main, epoch):
            self._tell(Examines())

    def can_hold(self, *, stays: bool) -> bool:
        """Say whether workers start by `start`, because the next one's process is held.

        Args:
            stays: the guard's container outlives its worker.
        """
        if self._wants_standby:
            from inplace.agent.worker.guard_standby import standby_of

            self._standby = standby_of(self._command, self._env, self._log, stays=stays)
            self._wants_standby = False
        return self._standby is not None

    def start(self, env: Mapping[str, str]) -> int:
        """Release the process that is held, or start one; return its id.

        Raises:
            OSError: the command cannot be executed.
        """
        assert self._standby is not None, "expected can_hold() to be asked before"
        return self._standby.start(env)

    def sweep(self) -> bool:
        """Kill all below this guard but a standby that waits; say whether nothing else is left."""
        return sweep(self._standby)

    def ends(self, pid: int, code: int) -> None:
        """Take in the end of a child BEFORE it is reaped."""
        if self._standby is not None:
            self._standby.ended(pid, code)

    def reaped(self, pid: int, code: int) -> None:
        """Take in the end of a child that is not the worker."""
        if self._examination is not None and pid == self._examination.pid:
            self._examination.ended()
            self._tell(Examines())
        elif self._check is not None and pid == self._check.pid:
            self._go_on(joins=self._check.ended(code))

    def cut(self, why: str) -> None:
        """Kill what runs."""
        for aside in (self._check, self._examination):
            if aside is not None:
                aside.cut(why)

    def end(self, why: str) -> None:
        """Kill what runs, and what is held."""
        self.cut(why)
        if self._standby is not None:
            self._standby.end()

    def swept(self) -> None:
        """Take note that nothing is left of the examination."""
        if self._examination is not None:
            self._examination.ended()

    def _go_on(self, *, joins: bool) -> None:
        """Tell the agent where the check stands, or end this container: its Job replaces the Pod."""
        self._tell(self._check.word() if joins and self._check is not None else Unfit())
        if not joins:
            self._leave(CODE)
