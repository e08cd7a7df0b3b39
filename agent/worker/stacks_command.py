"""
Write where the worker's ranks are to its log, beside the worker: a process of its own does it (`agent.stacks.look`).

So a /proc that hangs delays nothing, and a guard stays small. At most one such process runs, and STACKS_S_MAX after its
start it is killed. For the same worker the next one begins ANSWER_S_MIN later at the earliest. If several requests
wait for it, it answers the newest one. docs/adr/0099
"""

from __future__ import annotations

import sys
import time

from inplace.agent.settings.command import EPOCH
from inplace.agent.worker.spawn import spawn
from inplace.agent.worker.stall_command import kill_tree
from inplace.common.bare.typed import TYPE_CHECKING, Final, Mapping
from inplace.common.wire.stacks import ANSWER_S_MIN, SILENCE, TAKEN

if TYPE_CHECKING:
    from inplace.agent.report.log import Log

STACKS_S_MAX: Final = 10.0
_PROGRAM: Final = "import sys\nsys.path[:] = {path!r}\nfrom inplace.agent.stacks.look import main\nsys.exit(main())\n"


class StacksCommand:
    """The stacks of one worker after the other.

    Args:
        env: of the container.

    Attributes:
        pid: of the process that looks; 0 if none runs.
        due_s: when `go_on` has something to do, of the monotonic clock; None if it has not.
    """

    def __init__(self, env: Mapping[str, str], log: Log) -> None:
        self._env = env
        self._log = log
        self._request = SILENCE  # that is being answered
        self._wanted: int | None = None
        self._main = 0  # that was asked last
        self._next_s = 0.0  # before, nothing is begun
        self._why = ""  # it was killed
        self.pid = 0
        self.due_s: float | None = None

    def ask(self, request: int, main: int, own: Mapping[str, str]) -> None:
        """Look at the worker as soon as the pace allows.

        Args:
            request: its id. What the watchdog asks means now or not at all.
            main: the worker's main process, 0 if none runs.
            own: what the present run's environment has beside the container's.
        """
        now_s = time.monotonic()
        if main != self._main:
            self._main, self._next_s = main, 0.0
        if request == SILENCE and (self.pid or now_s < self._next_s):
            return
        self._wanted = request
        if not self.pid:
            self.due_s = self._next_s
            self.go_on(now_s, main, own)

    def go_on(self, now_s: float, main: int, own: Mapping[str, str]) -> None:
        """Begin what is wanted once its time has come; kill what takes too long."""
        if self.due_s is None or now_s < self.due_s:
            return
        self.due_s = None
        if self.pid:
            self._why = f"it did not end within {STACKS_S_MAX:g} s, and was killed"
            kill_tree(self.pid)
        elif self._wanted is not None:
            self._request, self._wanted = self._wanted, None
            self._next_s, self._why = now_s + ANSWER_S_MIN, ""
            self._begin(now_s, main, own)

    def kill(self) -> None:
        """Kill the process that looks; its end is reaped as any."""
        if self.pid:
            self._why = "it was cut short: the worker ends"
            kill_tree(self.pid)

    def ended(self, code: int) -> None:
        """Take in the end of the process that looked."""
        self.pid, self.due_s = 0, None if self._wanted is None else self._next_s
        if code:
            self._say(self._why or f"what looks at the worker ended with exit code {code}")

    def _begin(self, now_s: float, main: int, own: Mapping[str, str]) -> None:
        if not main:
            self._say("no worker runs")
            return
        command = [sys.executable, "-IS", "-c", _PROGRAM.format(path=sys.path), str(main), str(self._request)]
        of_run = {name: text for name, text in own.items() if name != EPOCH}  # it is no process of the run
        try:
            self.pid = spawn(command, {**self._env, **of_run})
        except OSError as error:
            self._say(f"cannot execute {sys.executable}: {error.strerror}")
            return
        self.due_s = now_s + STACKS_S_MAX

    def _say(self, problem: str) -> None:
        self._log.warning(TAKEN, request=self._request, ranks=0, message=problem)
