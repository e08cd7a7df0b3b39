"""
Read the answers to a request for stacks out of the workers' logs. Pure.

`agent/stacks/look.py` writes a line for each thread, and one more behind all lines of an answer. A worker can forge
such lines; it then misleads the reader of its own log, within these bounds.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeGuard

from inplace.cli.logs.instances import Instance
from inplace.cli.logs.lines import LogLine
from inplace.common.protocol.bounds import INT32_MAX, REQUEST_MAX, STEP_MAX
from inplace.common.wire.stacks import SILENCE, TAKEN, THREAD

RANKS_MAX: Final = 64  # of one container
THREADS_MAX: Final = 16
ANSWERS_MAX: Final = 64  # of one log that are kept, the newest
_BEGINS: Final = b'{"timestamp": "'
_HAS: Final = (f'"event": "{THREAD}"'.encode(), f'"event": "{TAKEN}"'.encode())


@dataclass(frozen=True, slots=True)
class Thread:
    """One thread.

    Args:
        name: "main", or what is known.
        frames: `function file:line`, the innermost first; of a kernel's stack `function`.
        left_out: it has more frames than these.
    """

    name: str
    frames: tuple[str, ...]
    left_out: bool = False


@dataclass(slots=True)
class RankStack:
    """Where one rank is.

    Args:
        instance: its container.
        name: as its progress file is called, such as rank-3; "" if it has none.
        step: its last one, None if it told none.
        by: faulthandler, py-spy or kernel.
        state: of its process, one letter.
        silent: it was asked, and did not answer.
        note: why there is no more.
        threads: the main thread first.
    """

    instance: Instance
    name: str
    pid: int
    step: int | None
    by: str
    state: str
    silent: bool = False
    note: str = ""
    threads: list[Thread] = field(default_factory=list)

    @property
    def frames(self) -> tuple[str, ...]:
        """Return those of the main thread."""
        return self.threads[0].frames if self.threads else ()


@dataclass(slots=True)
class Answer:
    """One answer of one container.

    Args:
        request: its id; SILENCE if the watchdog asked.
        at_ns: of its last line, Unix time by its node's clock.
        is_whole: its last line came.
        problem: why nobody could be asked; "" if somebody was.
        ranks: by process id.
        epoch: of the worker. If no mark stands before the answer: one less than that of the next mark, None without.
    """

    request: int
    epoch: int | None = None
    at_ns: int = 0
    is_whole: bool = False
    problem: str = ""
    ranks: dict[int, RankStack] = field(default_factory=dict)


class Answers:
    """The answers in one log.

    Args:
        instance: whose.
        request: the oldest that counts; None takes all.
    """

    def __init__(self, instance: Instance, request: int | None) -> None:
        self.instance = instance
        self._request = request
        self._epoch: int | None = None  # of the last line
        self._found: list[Answer] = []

    def whole(self) -> Answer | None:
        """Return the newest answer that is whole."""
        return next((one for one in reversed(self._found) if one.is_whole), None)

    def newest(self) -> Answer | None:
        """Return the newest answer, be it whole or not."""
        return self.whole() or (self._found[-1] if self._found else None)

    def of_hang(self) -> Answer | None:
        """Return the newest answer that a watchdog asked for, be it whole or not."""
        silent = [one for one in self._found if one.request == SILENCE]
        return next((one for one in reversed(silent) if one.is_whole), silent[-1] if silent else None)

    def take(self, line: LogLine) -> None:
        """Take in a line of the log."""
        if line.epoch is not None and self._epoch is None:  # this is the first mark
            for one in self._found:
                one.epoch = line.epoch - 1 if one.epoch is None else one.epoch
        self._epoch = line.epoch
        if not line.text.startswith(_BEGINS) or not any(words in line.text[:200] for words in _HAS):
            return
        try:
            fields = json.loads(line.text)
            request, event = fields["request"], fields["event"]
        except (ValueError, KeyError, TypeError, RecursionError):
            return
        if not _is_number(request, REQUEST_MAX):
            return
        if self._request is not None and request < self._request:
            return
        answer = self._answer(request)
        answer.at_ns = line.at_ns
        if event == TAKEN:
            answer.is_whole, answer.problem = True, str(fields.get("message") or "")[:200]
        elif event == THREAD:
            self._note(answer, fields)

    def _answer(self, request: int) -> Answer:
        """Return the answer whose lines come now."""
        if not self._found or self._found[-1].is_whole or self._found[-1].request != request:
            self._found.append(Answer(request, self._epoch))
            if len(self._found) > ANSWERS_MAX:
                asked = (one for one in self._found if one.request != SILENCE)  # looks by hand go first
                self._found.remove(next(asked, self._found[0]))
        return self._found[-1]

    def _note(self, answer: Answer, fields: Mapping[str, Any]) -> None:
        pid = fields.get("pid")
        if not _is_number(pid, INT32_MAX) or (pid not in answer.ranks and len(answer.ranks) >= RANKS_MAX):
            return
        rank = answer.ranks.get(pid)
        if rank is None:
            step, note = fields.get("step"), str(fields.get("message") or "")
            by, state = (str(fields.get(key) or "")[:20] for key in ("by", "state"))
            name = str(fields.get("rank") or "")[:20]
            known = step if _is_number(step, STEP_MAX) else None
            rank = RankStack(self.instance, name, pid, known, by, state, bool(fields.get("silent")), note[:200])
            answer.ranks[pid] = rank
        frames = fields.get("frames")
        if isinstance(frames, list) and len(rank.threads) < THREADS_MAX:
            texts = (str(frame)[:200] for frame in frames[:100])
            rank.threads.append(
                Thread(str(fields.get("thread") or "")[:40], tuple(texts), bool(fields.get("left_out")))
            )


def _is_number(value: object, most: int) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= most
