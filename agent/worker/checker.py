"""
A supervisor's check before it announces: run the command of `--before-announce`, and leave no process of it.

`agent.worker.check` has what a guard's check shares with it.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Mapping

from inplace.agent.report.log import Log
from inplace.agent.start.exit_code import UnfitError
from inplace.agent.worker.check import Output, leave_reason, reason_of, verdict_on
from inplace.agent.worker.command import NOT_EXECUTABLE
from inplace.agent.worker.stall_command import kill_tree, shell_words
from inplace.common.kube.clock import Clock

RunAside = Callable[[list[str], Mapping[str, str], int], tuple[int, asyncio.Future[int]]]


class Checker:
    """Runs one command, before each run of the worker.

    Args:
        command: a shell's.
        timeout_s: then it is killed.
        joins_unanswered: the Pod joins although the command hangs or cannot be run.
    """

    def __init__(self, command: str, timeout_s: float, *, joins_unanswered: bool, clock: Clock, log: Log) -> None:
        self._command = command
        self._timeout_s = timeout_s
        self._joins_unanswered = joins_unanswered
        self._clock = clock
        self._log = log

    async def check(self, run_aside: RunAside, env: Mapping[str, str]) -> None:
        """Return if this Pod may announce.

        Args:
            run_aside: starts a command beside the worker, with a descriptor for its output; returns its process id and
                its exit code to come. The caller ends what is left below this process.
            env: the command's, beside the worker's own.

        Raises:
            UnfitError: it may not.
        """
        began_s = self._clock.monotonic_s()
        output = Output()
        verdict = verdict_on(
            await self._run(run_aside, env, output), self._timeout_s, joins_unanswered=self._joins_unanswered
        )
        took_s = round(self._clock.monotonic_s() - began_s, 3)
        if not verdict.joins:
            reason = reason_of(verdict, output.text)
            leave_reason(reason)
            raise UnfitError(reason)
        if verdict.problem:
            then = "the Pod joins its group unchecked"
            self._log.warning("check_unanswered", message=verdict.problem, output=output.text, took_s=took_s, then=then)
        else:
            self._log.info("check_passed", took_s=took_s)

    async def _run(self, run_aside: RunAside, env: Mapping[str, str], output: Output) -> int | None:
        """Return the command's exit code, None if it took too long; whatever comes between, it does not run on."""
        loop = asyncio.get_running_loop()
        read_end, write_end = os.pipe()
        os.set_blocking(read_end, False)

        def read() -> None:
            if not output.read(read_end):
                loop.remove_reader(read_end)

        loop.add_reader(read_end, read)
        pid, ended = 0, None
        try:
            pid, ended = run_aside(shell_words(self._command), env, write_end)
            os.close(write_end)
            write_end = -1
            async with self._clock.timeout(self._timeout_s):
                return await asyncio.shield(ended)
        except TimeoutError:
            return None
        except OSError:  # /bin/sh cannot be executed
            return NOT_EXECUTABLE
        finally:
            if ended is not None and not ended.done():
                kill_tree(pid)
            loop.remove_reader(read_end)
            output.drain(read_end)
            for descriptor in (read_end, write_end):
                if descriptor >= 0:
                    os.close(descriptor)
