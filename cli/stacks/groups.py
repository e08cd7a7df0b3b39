"""
Put ranks that are at the same place together, and say in words who differs. Pure.

Two ranks are at the same place if their main threads have the same frames. Who answers nothing is a group of its own.
The answers are lines of the workers' logs: `agent/stacks/look.py` writes one for each thread, and one more behind all
lines of an answer. A worker can forge such lines; it then misleads the reader of its own log, within these bounds.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, TypeGuard

from inplace.cli.logs.container_log import Instance
from inplace.cli.logs.lines import LogLine
from inplace.common.protocol.bounds import INT32_MAX, REQUEST_MAX, STEP_MAX
from inplace.common.wire.stacks import SILENCE, TAKEN, THREAD

if TYPE_CHECKING:
    from inplace.cli.documents import StackGroup

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


PARTS_MAX: Final = 6  # of the first line
GROUPS_MAX: Final = 12  # that are printed for people
FRAMES_MAX: Final = 12  # of each
NUMBERS_MAX: Final = 8  # ranges of ranks in one line
STATES: Final = {
    "D": "in uninterruptible sleep",
    "T": "stopped",
    "t": "stopped by a debugger",
    "Z": "ended, and not reaped",
    "R": "running",
    "S": "asleep",
}


@dataclass(frozen=True, slots=True)
class Group:
    """Ranks at the same place, the lowest first."""

    ranks: tuple[RankStack, ...]

    @property
    def first(self) -> RankStack:
        """Return the one that stands for all."""
        return self.ranks[0]

    @property
    def steps(self) -> tuple[int, int] | None:
        """Return the lowest and the highest step, None where no rank told one."""
        told = [rank.step for rank in self.ranks if rank.step is not None]
        return (min(told), max(told)) if told else None

    @property
    def place(self) -> str:
        """Say where they are."""
        rank = self.first
        if rank.silent:
            return f"answers nothing ({STATES.get(rank.state, 'gone')})"
        if rank.by == "kernel":
            where = f" in {rank.frames[0]} of the kernel" if rank.frames else ""
            return f"{STATES.get(rank.state, 'gone')}{where}"
        if not rank.frames:
            return "without a Python frame"
        function, _, at = rank.frames[0].rpartition(" ")
        return f"in {function}() of {at.rpartition('/')[2]}"


class Names:
    """The names of ranks: numbers where the launcher gave each one its own, else the Pod's rank."""

    def __init__(self, ranks: Sequence[RankStack]) -> None:
        numbers = [_number(rank) for rank in ranks]
        self._are_global = None not in numbers and len(set(numbers)) == len(numbers)
        pods = [rank.instance.rank for rank in ranks]
        self._are_pods = None not in pods and len(set(pods)) == len(pods)

    def number(self, rank: RankStack) -> int | None:
        """Return the rank's number, None where there is no single one."""
        return _number(rank) if self._are_global else rank.instance.rank if self._are_pods else None

    def name(self, rank: RankStack) -> str:
        """Return the rank's name."""
        number = self.number(rank)
        if number is not None:
            return str(number)
        return f"{rank.instance.name}:{rank.name or rank.pid}"

    def order(self, rank: RankStack) -> tuple[int, int, str, int]:
        """Sort ranks."""
        number = self.number(rank)
        pod = rank.instance.rank
        return (-1 if number is None else number, -1 if pod is None else pod, rank.name, rank.pid)


def _number(rank: RankStack) -> int | None:
    kind, _, number = rank.name.partition("-")
    return int(number) if kind in ("rank", "jax") and number.isascii() and number.isdigit() else None


def groups_of(ranks: Iterable[RankStack], names: Names) -> list[Group]:
    """Return the groups, the smallest first; of equals who answers nothing, then who is furthest behind."""
    found: dict[tuple[object, ...], list[RankStack]] = {}
    for rank in sorted(ranks, key=names.order):
        key = ("silent", rank.state) if rank.silent else (rank.by, rank.frames or rank.state)
        found.setdefault(key, []).append(rank)
    groups = [Group(tuple(each)) for each in found.values()]
    return sorted(groups, key=lambda one: (len(one.ranks), not one.first.silent, one.steps or (1 << 62, 0)))


def summary(groups: Sequence[Group], names: Names) -> str:
    """Say in one line where most ranks are, and who is elsewhere."""
    total = sum(len(group.ranks) for group in groups)
    *few, most = groups
    parts = [f"{len(most.ranks):,} of {total:,} rank{'s' * (total != 1)} {_plural(most)}{_at(most)}"]
    parts += [f"{_who(group, names)} {_plural(group)}{_at(group)}" for group in few[: PARTS_MAX - 1]]
    rest = few[PARTS_MAX - 1 :]
    if rest:
        parts.append(f"{sum(len(group.ranks) for group in rest):,} more at {len(rest):,} other places")
    return "; ".join(parts)


def _plural(group: Group) -> str:
    return group.place.replace("answers", "answer", 1) if group.first.silent and len(group.ranks) > 1 else group.place


def _at(group: Group) -> str:
    steps = group.steps
    if steps is None:
        return ""
    return f" at step {steps[0]:,}" if steps[0] == steps[1] else f" at steps {steps[0]:,} to {steps[1]:,}"


def _who(group: Group, names: Names) -> str:
    word = "rank" if len(group.ranks) == 1 else "ranks"
    return f"{word} {ranges([names.number(rank) for rank in group.ranks], [names.name(rank) for rank in group.ranks])}"


def ranges(numbers: Sequence[int | None], texts: Sequence[str]) -> str:
    """Return names in short, such as 0-2,4 and 7 more."""
    found: list[str] = []
    begin = 0
    for index, number in enumerate(numbers):
        after = numbers[index + 1] if index + 1 < len(numbers) else None
        if number is not None and after == number + 1:
            continue
        found.append(texts[begin] if begin == index else f"{texts[begin]}-{texts[index]}")
        begin = index + 1
    rest = len(found) - NUMBERS_MAX
    return ",".join(found[:NUMBERS_MAX]) + (f" and {rest:,} more" if rest > 0 else "")


def text_of(groups: Sequence[Group], names: Names) -> list[str]:
    """Return a paragraph for each group, for people."""
    lines = []
    for group in groups[:GROUPS_MAX]:
        rank = group.first
        pods = sorted({one.instance.name for one in group.ranks})
        pod = f" ({pods[0]})" if len(pods) == 1 else ""
        lines += ["", f"{_who(group, names)}{pod}: {_plural(group)}{_at(group)}"]
        lines += [f"  {rank.note}"] if rank.note else []
        lines += [f"  {_frame(frame)}" for frame in rank.frames[:FRAMES_MAX]]
        more = len(rank.frames) - FRAMES_MAX
        if more > 0 or (rank.threads and rank.threads[0].left_out):
            lines.append(f"  ... {f'{more:,} more' if more > 0 else 'and more'}")
    rest = len(groups) - GROUPS_MAX
    return [*lines, *(["", f"{rest:,} other places are left out; --json has them"] if rest > 0 else [])]


def _frame(frame: str) -> str:
    function, _, at = frame.rpartition(" ")
    return f"{function}  {at}" if function else f"{at}  (kernel)"


def data_of(groups: Sequence[Group], names: Names) -> list[StackGroup]:
    """Return the same for programs, whole."""
    return [
        {
            "place": group.place,
            "by": group.first.by,
            "silent": group.first.silent,
            "state": group.first.state,
            "note": group.first.note,
            "ranks": [
                {
                    "rank": names.number(rank),
                    "pod": rank.instance.pod,
                    "container": rank.instance.container,
                    "name": rank.name,
                    "pid": rank.pid,
                    "step": rank.step,
                }
                for rank in group.ranks
            ],
            "threads": [
                {"name": thread.name, "frames": list(thread.frames), "leftOut": thread.left_out}
                for thread in group.first.threads
            ],
        }
        for group in groups
    ]
