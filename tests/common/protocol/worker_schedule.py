"""Workers that never were: when each rank writes, when the agent looks, and what the looks show."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from random import Random

from inplace.common.protocol.rank import FIRST_STEPS_FACTOR, RankLook, StallSettings
from inplace.common.protocol.stall import (
    Action,
    Look,
    Looked,
    StallCommandEnded,
    StallPhase,
    StallState,
    WorkerStarted,
    step,
)

EPOCH = 5
ALMOST = 0.999  # of a limit: within it, whatever floats do
STEPS_MAX = 20
BUSY_S_MAX = 600
RANKS_MAX = 4


@dataclass(frozen=True, slots=True)
class Write:
    """One rank's file from `at_s` on."""

    at_s: float
    step: int | None = None
    busy: str = ""
    busy_s_max: int = 0
    ended: bool = False


@dataclass(frozen=True, slots=True)
class Schedule:
    """What happens in one epoch, on the worker's own clock, which stands still while all is paused."""

    settings: StallSettings
    ranks: tuple[tuple[Write, ...], ...]
    end_s: float


def healthy_schedule(rng: Random) -> Schedule:
    """Draw a worker each of whose ranks keeps its limits, some of them only just."""
    stall_s = rng.choice([1.0, 2.0, 10.0, 60.0])
    start_s = rng.choice([None, 5 * stall_s, 20 * stall_s])
    settings = StallSettings(stall_s, start_s)
    ranks = tuple(tuple(_writes(rng, stall_s, start_s)) for _ in range(rng.randint(1, RANKS_MAX)))
    end_s = min(writes[-1].at_s for writes in ranks)
    return Schedule(settings, ranks, end_s)


def _writes(rng: Random, stall_s: float, start_s: float | None) -> Iterator[Write]:
    """Yield one rank's writes: it starts, perhaps compiles, then steps, with checkpoints between them."""
    at_s = within(rng, start_s if start_s is not None else 3 * stall_s)
    first_s = start_s if start_s is not None else FIRST_STEPS_FACTOR * stall_s
    if rng.random() < 0.5:
        limit_s = rng.randint(1, BUSY_S_MAX)
        yield Write(at_s, None, "compile", limit_s)
        at_s += within(rng, limit_s)
        yield Write(at_s)
        at_s += within(rng, start_s if start_s is not None else 10 * stall_s)
    number = rng.choice([0, 0, 1_000])
    for made in range(rng.randint(1, STEPS_MAX)):
        number = number + 1 if rng.random() < 0.98 else max(0, number - 50)  # a step back, to a checkpoint
        yield Write(at_s, number)
        if rng.random() < 0.1:
            limit_s = rng.randint(1, BUSY_S_MAX)
            at_s += within(rng, stall_s)
            yield Write(at_s, number, "checkpoint", limit_s)
            at_s += within(rng, limit_s)
            yield Write(at_s, number)
        at_s += within(rng, first_s if made < 3 else stall_s)
    yield Write(at_s, number + 1, ended=rng.random() < 0.5)


def within(rng: Random, limit_s: float) -> float:
    """Draw a time below a limit: often much shorter, sometimes only just below."""
    return limit_s * rng.choice([rng.uniform(0.01, ALMOST), rng.uniform(0.01, 0.3), ALMOST])


def look_times(rng: Random, schedule: Schedule, *, pauses: bool) -> Iterator[tuple[float, float]]:
    """Yield (worker's clock, agent's clock) of each look.

    Looks are on time, or some time late. With `pauses`, now and then the agent alone is stopped, or everything is.
    """
    period_s = schedule.settings.period_s
    worker_s = agent_s = 1_000.0 * rng.random()
    began_s = worker_s
    while worker_s - began_s < schedule.end_s:
        gap_s = period_s * rng.uniform(1.0, 2.0 if pauses else 1.0)
        paused_s = 0.0
        if pauses and rng.random() < 0.03:
            long_s = period_s * rng.uniform(2.0, 200.0)
            if rng.random() < 0.5:
                gap_s += long_s
            else:
                paused_s = long_s
        worker_s += gap_s
        agent_s += gap_s + paused_s
        yield worker_s - began_s, agent_s


@dataclass(slots=True)
class Reader:
    """What the agent's folder would show at each look."""

    ranks: Sequence[Sequence[Write]]
    next: list[int]

    def look(self, worker_s: float) -> Look:
        """Return a look at this moment of the worker's clock."""
        seen = []
        for number, writes in enumerate(self.ranks):
            first = at = self.next[number]
            while at < len(writes) and writes[at].at_s <= worker_s:
                at += 1
            self.next[number] = at
            if at:
                now = writes[at - 1]
                begun = now.step is not None
                seen.append(
                    RankLook(
                        f"rank-{number}", at > first, now.step, begun, None, now.busy, now.busy_s_max, ended=now.ended
                    )
                )
        return Look(EPOCH, tuple(seen))


def watch(
    settings: StallSettings, ranks: Sequence[Sequence[Write]], times: Iterator[tuple[float, float]]
) -> Iterator[tuple[float, StallState, tuple[Action, ...]]]:
    """Run the machine over the looks; yield the worker's time, the state and the actions of each."""
    reader = Reader(ranks, [0] * len(ranks))
    state = StallState(settings)
    for worker_s, agent_s in times:
        if state.epoch is None:
            state, _ = step(state, WorkerStarted(EPOCH, agent_s - worker_s))
        state, actions = step(state, Looked(agent_s, reader.look(worker_s)))
        if state.phase is StallPhase.ASKING:
            state, actions = step(state, StallCommandEnded())
        yield worker_s, state, actions
