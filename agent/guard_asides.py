"""
The commands that a guard runs beside its worker: `--before-announce` before there is one, `--on-stall` when it hangs.

A guard without either loads nothing of this.
"""

from __future__ import annotations

from inplace.agent.guard_check import GuardCheck
from inplace.agent.guard_examination import Examination
from inplace.common.link import Examine, Examines, Message, Unfit
from inplace.common.typed import TYPE_CHECKING, Callable, Mapping
from inplace.common.unfit import CODE

if TYPE_CHECKING:
    from inplace.agent.arguments import GuardOptions


class Asides:
    """The two commands of one guard; each is there or not.

    Args:
        tell: says something to the agent, if it is there.
        leave: ends the guard with an exit code.
        say: prints a line to the container's log.
    """

    def __init__(
        self,
        options: GuardOptions,
        env: Mapping[str, str],
        *,
        tell: Callable[[Message], None],
        leave: Callable[[int], None],
        say: Callable[[str], None],
    ) -> None:
        self._tell = tell
        self._leave = leave
        self._check = GuardCheck(options, env, say) if options.before_announce else None
        self._examination = Examination(options.on_stall, env, say) if options.on_stall else None

    def words(self) -> list[Message]:
        """Return what a new agent is told."""
        examines: list[Message] = [Examines()] if self._examination is not None else []
        return [*examines, self._check.word()] if self._check is not None else examines

    @property
    def descriptor(self) -> int:
        """Return where output of the check is read; -1 for nowhere."""
        return self._check.descriptor if self._check is not None else -1

    def read(self) -> None:
        """Take in output of the check."""
        if self._check is not None:
            self._check.read()

    def dues_s(self) -> list[float | None]:
        """Return when something has to be killed."""
        return [aside.by_s for aside in (self._check, self._examination) if aside is not None]

    def end_late(self) -> None:
        """Kill what has used up its time."""
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

    def swept(self) -> None:
        """Take note that nothing is left of the examination."""
        if self._examination is not None:
            self._examination.ended()

    def _go_on(self, *, joins: bool) -> None:
        """Tell the agent where the check stands, or end this container: its Job replaces the Pod."""
        self._tell(self._check.word() if joins and self._check is not None else Unfit())
        if not joins:
            self._leave(CODE)
