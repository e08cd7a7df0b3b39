"""
The last group restart as rows of phases: one row for each Pod, or for many Pods the slowest one. Pure.

Kubernetes records whole seconds: when a container ended and started, and when the agent's announcement was written. The
Pod's phases annotation has milliseconds and is used where it is there (common/phases.py).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from itertools import groupby

from inplace.cli.group.pod_facts import Container, PodFact
from inplace.cli.group.state import LastRestart
from inplace.cli.terminal.moments import parse_time
from inplace.common import wire
from inplace.common.epoch.errors import RemoteProtocolError
from inplace.common.phases import RestartPhase, parse_phases

SECOND_S = 1.0  # what managedFields cuts off: a supervised group restarts within one, so the latest moment is taken
TAIL = 0.05  # share of the picture behind the last moment


class Stage(IntEnum):
    """What a Pod is in, in the order of a restart."""

    OLD = 0  # the old epoch's worker runs
    DOWN = 1  # it ended; its containers, or the worker's process, start again
    BACK = 2  # the agent is back and has not announced
    BARRIER = 3  # announced; waits for the others
    RUNS = 4  # the new epoch's worker runs


STAGE_WORDS: Mapping[Stage, str] = {
    Stage.OLD: "old epoch runs",
    Stage.DOWN: "worker is down",
    Stage.BACK: "agent starts",
    Stage.BARRIER: "waits at the barrier",
    Stage.RUNS: "new epoch runs",
}


@dataclass(frozen=True, slots=True)
class Row:
    """One Pod, or several in their slowest moments.

    Args:
        ends: when stages OLD, DOWN, BACK and BARRIER ended, wall time; never falling. None for not yet.
    """

    name: str
    pods: int
    ends: tuple[float | None, ...]

    def stage_at(self, at_s: float) -> Stage:
        """Return the stage at a moment."""
        for stage, end_s in zip(Stage, self.ends, strict=False):
            if end_s is None or at_s < end_s:
                return stage
        return Stage.RUNS


@dataclass(frozen=True, slots=True)
class RestartTimeline:
    """One restart.

    Args:
        began_s: zero of the picture, wall time.
        until_s: its right edge.
        synced_s: when S was written; None for not yet, or unknown.
    """

    epoch: int
    began_s: float
    until_s: float
    synced_s: float | None
    rows: Sequence[Row]
    last: LastRestart | None


def restart_timeline(
    pods: Iterable[PodFact], last: LastRestart | None, *, now_s: float, rows_max: int
) -> RestartTimeline | None:
    """Return the last restart; None when there was none, or no Pod remembers it.

    Args:
        pods: whole ones.
        last: what the status says of it.
        now_s: wall time.
        rows_max: more Pods than this share rows.
    """
    live = sorted((pod for pod in pods if pod.is_live and pod.slot is not None), key=lambda pod: pod.slot or ())
    epoch = max((pod.epoch for pod in live), default=0)
    synced_s = parse_time(last.synced_at) if last is not None and last.epoch == epoch else None
    rows = [_row(pod, epoch, synced_s) for pod in live]
    firsts = [row.ends[0] for row in rows if row.ends[0] is not None]
    began_s = parse_time(last.started_at) if last is not None and last.epoch == epoch else min(firsts, default=None)
    if epoch < 2 or began_s is None:  # epoch 1 is the first start
        return None
    known = [end_s for row in rows for end_s in row.ends if end_s is not None]
    waits = any(row.ends[-1] is None for row in rows)
    until_s = max([now_s] if waits else [*known, synced_s or began_s])
    until_s += max(1.0, (until_s - began_s) * TAIL)
    return RestartTimeline(epoch, began_s, until_s, synced_s, _gathered(rows, live, rows_max), last)


def _row(pod: PodFact, epoch: int, synced_s: float | None) -> Row:
    """Read the moments of one Pod."""
    ended_s = _latest(_ended_s(one) for one in pod.workers)
    back_s = _latest(map(_started_s, pod.status.init_container_statuses or ()))
    working_s = _latest(map(_started_s, pod.workers))
    if pod.epoch != epoch:
        return Row(pod.name, 1, _rising((ended_s, back_s, None, None)))
    phases = _phases(pod)
    announced_s = _announced_s(pod)
    if announced_s is None and back_s is not None:  # nobody keeps managedFields
        announced_s = back_s + phases.get(RestartPhase.VIEW, 0.0)
    if RestartPhase.DEATH in phases:  # a supervisor: its worker is no container of its own
        latest_s = announced_s + SECOND_S if announced_s is not None else synced_s
        announced_s = latest_s if latest_s is None or synced_s is None else min(latest_s, synced_s)
        ended_s, back_s = None if announced_s is None else announced_s - phases[RestartPhase.DEATH], announced_s
        working_s = synced_s
    if working_s is not None and synced_s is not None:  # its second may have begun before S was written; it did not
        working_s = max(working_s, synced_s)
    return Row(pod.name, 1, _rising((ended_s, back_s, announced_s, working_s)))


def _latest(moments: Iterable[float | None]) -> float | None:
    return max((moment for moment in moments if moment is not None), default=None)


def _gathered(rows: Sequence[Row], pods: Sequence[PodFact], rows_max: int) -> list[Row]:
    """Put rows together until they fit: by Job, then so many Jobs or Pods at a time."""
    if len(rows) <= rows_max:
        return list(rows)
    jobs = [str(pod.slot).rpartition("-")[0] for pod in pods]
    groups = [[row for _, row in found] for _, found in groupby(zip(jobs, rows, strict=True), key=lambda pair: pair[0])]
    names = [name for name, _ in groupby(jobs)]
    if len(groups) == 1:  # one large Job: neighbours by completion index
        size = -(-len(rows) // rows_max)
        groups = [list(rows[at : at + size]) for at in range(0, len(rows), size)]
        names = [f"{names[0]}-{at}…{min(at + size, len(rows)) - 1}" for at in range(0, len(rows), size)]
    size = -(-len(groups) // rows_max)
    return [
        _slowest(
            names[at] if size == 1 else f"{names[at]}…{names[min(at + size, len(names)) - 1].rpartition('-')[2]}",
            [row for group in groups[at : at + size] for row in group],
        )
        for at in range(0, len(groups), size)
    ]


def _slowest(name: str, rows: Sequence[Row]) -> Row:
    """Return the row in which every stage lasts until the last of them has left it."""
    ends = []
    for moments in zip(*(row.ends for row in rows), strict=True):
        known = [moment for moment in moments if moment is not None]
        ends.append(max(known) if len(known) == len(moments) else None)
    return Row(name, sum(row.pods for row in rows), tuple(ends))


def _rising(moments: Sequence[float | None]) -> tuple[float | None, ...]:
    """Return moments that never fall: whole seconds of several clocks may, by one. Nothing follows what is not yet."""
    rising: list[float | None] = []
    least, is_open = float("-inf"), False
    for number, moment in enumerate(moments):
        later = [one for one in moments[number:] if one is not None]
        if is_open or not later:
            is_open = True
            rising.append(None)
            continue
        least = max(least, moment if moment is not None else min(later))
        rising.append(least)
    return tuple(rising)


def _announced_s(pod: PodFact) -> float | None:
    """Return when its agent's last PATCH was taken: managedFields has it."""
    return _latest(
        parse_time(entry.time)
        for entry in pod.metadata.managed_fields or ()
        if entry.manager == wire.FIELD_MANAGER_AGENT and not entry.subresource
    )


def _phases(pod: PodFact) -> Mapping[RestartPhase, float]:
    text = pod.metadata.annotations.phases if pod.metadata.annotations is not None else None
    try:
        return parse_phases(text) if text is not None else {}
    except RemoteProtocolError:
        return {}


def _ended_s(container: Container) -> float | None:
    ended = container.state.terminated or container.last_state.terminated
    return parse_time(ended.finished_at) if ended is not None else None


def _started_s(container: Container) -> float | None:
    running = container.state.running
    return parse_time(running.started_at) if running is not None else None
