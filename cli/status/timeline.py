"""
`inplace timeline`: the last group restart, one row for each Pod, or for many Pods the slowest one.

A Pod's own moments are exact: its announcement says when it was made and how long its parts took
(common/wire/phases.py), and S has the controller's time. Kubernetes records whole seconds: when a container ended and
started, and when an annotation was written. They are drawn where the Pod says nothing, or another second: then its
node's clock is not believed.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import IntEnum
from itertools import groupby
from typing import TYPE_CHECKING, Final

from rich.text import Text

from inplace.cli.connection import Connection, command
from inplace.cli.group.last_restart import LastRestart, first_failure
from inplace.cli.group.pod_facts import Container, PodFact
from inplace.cli.group.read import read_jobset, read_pods
from inplace.cli.group.scope_state import noun_of
from inplace.cli.group.state import GroupState, group_state
from inplace.cli.refusal import RefusalError
from inplace.cli.status.document import TRIGGERS, blame_text, failure_text
from inplace.cli.terminal.moments import count_text, duration_text
from inplace.cli.terminal.screen import Output, console, print_data, show
from inplace.cli.terminal.visible import one_line
from inplace.common.bare.record import record
from inplace.common.jobset.causes import unix_time
from inplace.common.jobset.headline import ENDED
from inplace.common.protocol.errors import RemoteProtocolError
from inplace.common.protocol.members import Members
from inplace.common.wire import names as wire
from inplace.common.wire.phases import RestartPhase, moment_of, parse_numbers
from inplace.common.wire.worker_failure import parse_failure

if TYPE_CHECKING:
    from inplace.cli.documents import TimelineDocument

SECOND_S = 1.0  # what Kubernetes cuts off
SKEW_S = 1.0  # so far apart may two clocks be; and so late does kubelet see that a container ended
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


@record
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


@record
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
    synced_s = unix_time(last.synced_at) if last is not None and last.epoch == epoch else None
    rows = [_row(pod, epoch, synced_s) for pod in live]
    firsts = [row.ends[0] for row in rows if row.ends[0] is not None]
    began_s = unix_time(last.started_at) if last is not None and last.epoch == epoch else min(firsts, default=None)
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
    numbers = _numbers(pod)
    announced_s = _announced_s(pod)
    if announced_s is None and back_s is not None:  # nobody keeps managedFields
        announced_s = back_s + numbers.get(RestartPhase.VIEW.value, 0) / 1000
    at_s = _at_s(numbers, announced_s, synced_s)
    if RestartPhase.DEATH.value in numbers:  # an agent that stays: no container ended
        return _supervised_row(pod.name, at_s, announced_s, numbers, synced_s)
    exact = _exact_moments(pod, at_s, numbers, ended_s, back_s)
    if working_s is not None and synced_s is not None:
        if pod.is_guarded and working_s <= synced_s:  # the guard starts the worker at the lift
            exact[Stage.BARRIER] = synced_s
        working_s = max(working_s, synced_s)  # its second may have begun before S was written; it did not
    seen = {Stage.OLD: ended_s, Stage.DOWN: back_s, Stage.BACK: announced_s, Stage.BARRIER: working_s}
    return Row(pod.name, 1, _rising(tuple((seen | exact).values())))


def _at_s(numbers: Mapping[str, int], announced_s: float | None, synced_s: float | None) -> float | None:
    """Return when a Pod announced, as it says itself; None where the API server says otherwise."""
    if announced_s is not None:
        at_s = moment_of(numbers, announced_s + SECOND_S / 2)
        return at_s if at_s is not None and _agree(at_s, announced_s, SKEW_S) else None
    at_s = moment_of(numbers, synced_s) if synced_s is not None else None  # nobody keeps managedFields
    return at_s if at_s is not None and synced_s is not None and at_s <= synced_s + SKEW_S else None


def _supervised_row(
    name: str, at_s: float | None, announced_s: float | None, numbers: Mapping[str, int], synced_s: float | None
) -> Row:
    """Return the row of a Pod whose worker is a child of its agent."""
    latest_s = at_s
    if at_s is None:  # a supervised group restarts within the second that managedFields has: the latest moment is taken
        latest_s = announced_s + SECOND_S if announced_s is not None else synced_s
        latest_s = latest_s if latest_s is None or synced_s is None else min(latest_s, synced_s)
    ended_s = None if latest_s is None else latest_s - numbers[RestartPhase.DEATH.value] / 1000
    return Row(name, 1, _rising((ended_s, latest_s, latest_s, synced_s)))


def _exact_moments(
    pod: PodFact, at_s: float | None, numbers: Mapping[str, int], ended_s: float | None, back_s: float | None
) -> dict[Stage, float | None]:
    """Return the ends of stages that a sidecar's Pod tells itself, where kubelet's seconds agree."""
    exact: dict[Stage, float | None] = {}
    view, kubelet = (numbers.get(phase.value) for phase in (RestartPhase.VIEW, RestartPhase.KUBELET))
    if at_s is None:
        return exact
    exact[Stage.BACK] = at_s
    made_s = None if view is None else at_s - view / 1000
    if made_s is not None and (back_s is None or _agree(made_s, back_s)):
        exact[Stage.DOWN] = made_s
    if pod.is_guarded and made_s is not None:  # its worker ended when its agent left, or before
        left_s = made_s - kubelet / 1000 if kubelet is not None else None
        for moment_s in (_told_s(pod, pod.epoch - 1), left_s):
            # kubelet keeps no end of a container that it has removed.
            if moment_s is not None and (ended_s is None or _agree(moment_s, ended_s, SKEW_S)):
                exact[Stage.OLD] = moment_s
                break
    return exact


def _agree(exact_s: float, second_s: float, skew_s: float = 0.05) -> bool:
    """Say whether a moment is within a whole second, or as far beside it as clocks may be apart."""
    return -skew_s <= exact_s - second_s <= SECOND_S + skew_s


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
    ends: list[float | None] = []
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
        unix_time(entry.time)
        for entry in pod.metadata.managed_fields or ()
        if entry.manager == wire.FIELD_MANAGER_AGENT and not entry.subresource
    )


def _numbers(pod: PodFact) -> Mapping[str, int]:
    text = pod.metadata.annotations.phases if pod.metadata.annotations is not None else None
    try:
        return parse_numbers(text) if text is not None else {}
    except RemoteProtocolError:
        return {}


def _told_s(pod: PodFact, epoch: int) -> float | None:
    """Return when its agent told that the worker of an epoch died."""
    text = pod.metadata.annotations.worker_failed if pod.metadata.annotations is not None else None
    try:
        told = parse_failure(text) if text is not None else None
    except RemoteProtocolError:
        return None
    return told.at_s if told is not None and told.epoch == epoch and told.stalled_s is None else None


def _ended_s(container: Container) -> float | None:
    ended = container.last_end
    return unix_time(ended.finished_at) if ended is not None else None


def _started_s(container: Container) -> float | None:
    running = container.state.running
    return unix_time(running.started_at) if running is not None else None


ROWS_MAX: Final = 200  # of the document
TERMINAL_ROWS_MAX: Final = 40
NAME_COLUMNS: Final = 26
COLUMNS_MAX: Final = 140  # wider bars say no more
WHOLE_SECONDS: Final = "moments that a Pod does not tell itself are Kubernetes' whole seconds"
STYLES: Final = {
    Stage.OLD: ("░", "green"),
    Stage.DOWN: ("▒", "red"),
    Stage.BACK: ("▓", "yellow"),
    Stage.BARRIER: ("·", "blue"),
    Stage.RUNS: ("█", "green"),
}


def _why_nothing(state: GroupState) -> str:
    """Say why no restart can be drawn; the Pods of one that ended are gone, and its status still tells of the last."""
    if state.last is None:
        return "has not restarted in place yet"
    when = f"its last restart led to epoch {state.last.epoch}"
    if state.phase in ENDED:
        return (
            f"has ended ({state.phase.value}), and its Pods, which remember their restarts, are gone or silent; {when}"
        )
    return f"has restarted in place ({when}), and no Pod of it that is there now remembers that"


@command
async def run_timeline(connection: Connection, name: str, *, output: Output) -> None:
    """Draw the last restart."""
    state, pods = await read_restart(connection, name)
    rows_max = ROWS_MAX if output != "table" else TERMINAL_ROWS_MAX
    timeline = restart_timeline(pods, state.last, now_s=time.time(), rows_max=rows_max)
    if timeline is None:
        raise RefusalError(f"JobSet {name} {_why_nothing(state)}: nothing to draw")
    if output != "table":
        print_data(timeline_data(timeline), output)
    else:
        show(*timeline_lines(timeline, timeline_title(state, timeline, pods), console().width))


async def read_restart(connection: Connection, name: str) -> tuple[GroupState, list[PodFact]]:
    """Read a JobSet and its Pods whole, spares left out: when each container ended stands nowhere else."""
    raw = await read_jobset(connection, name)
    pods = (await read_pods(connection, name)).pods
    state = group_state(raw, pods)
    members = {scope.name: scope.members for scope in state.scopes if scope.members is not None}
    return state, [pod for pod in pods if not _is_apart(pod, members)] if members else pods


def _is_apart(pod: PodFact, members: Mapping[str, Members]) -> bool:
    """Say whether a Pod of a group with spares plays no rank: a spare is one epoch ahead, and in no restart."""
    played = members.get(pod.slot.replicated_job) if pod.slot is not None else None  # this replicatedJob is the scope
    return played is not None and pod.slot is not None and played.place_of(*pod.slot[1:]) is None


def timeline_title(state: GroupState, timeline: RestartTimeline, pods: list[PodFact]) -> str:
    """Return the picture's subject in one line."""
    last = timeline.last if timeline.last is not None and timeline.last.epoch == timeline.epoch else None
    parts = [
        f"{state.namespace}/{state.name} → epoch {timeline.epoch}",
        count_text(state.expected, noun_of(state.scopes)),
    ]
    if last is not None and last.seconds is not None:
        parts.append(f"in {duration_text(last.seconds)}")
    if last is not None:
        parts.append(TRIGGERS.get(last.trigger or "", "cause unknown"))
    if last is not None and (blame := blame_text(last)):
        parts.append(blame)
    elif last is None and (seen := first_failure(pods)) is not None:
        parts.append(f"probably {failure_text(seen.fields)}")
    return ", ".join(parts)


def timeline_data(timeline: RestartTimeline) -> TimelineDocument:
    """Return the restart for programs: seconds since it began."""

    def since(at_s: float | None) -> float | None:
        return None if at_s is None else round(at_s - timeline.began_s, 3)

    names = [stage.name.lower() for stage in Stage][:-1]
    return {
        "epoch": timeline.epoch,
        "beganAt": timeline.began_s,
        "synced": since(timeline.synced_s),
        "rows": [
            {"name": row.name, "pods": row.pods, "ends": dict(zip(names, map(since, row.ends), strict=True))}
            for row in timeline.rows
        ],
    }


def timeline_lines(timeline: RestartTimeline, title: str, columns: int) -> Iterator[Text]:
    """Yield the picture for a terminal that is so wide."""
    names = min(NAME_COLUMNS, max((len(row.name) for row in timeline.rows), default=0))
    width = max(10, min(columns, COLUMNS_MAX) - names - 2)
    step_s = (timeline.until_s - timeline.began_s) / width
    yield Text(one_line(title), "bold")
    for row in timeline.rows:
        name = row.name if len(row.name) <= names else f"…{row.name[1 - names :]}"
        line = Text(f"{name:{names}} ", no_wrap=True, overflow="crop")
        for column in range(width):
            line.append(*STYLES[row.stage_at(timeline.began_s + (column + 0.5) * step_s)])
        yield line
    axis = f"{'':{names}} 0{duration_text(timeline.until_s - timeline.began_s):>{width - 1}}"
    yield Text(axis, "dim", no_wrap=True, overflow="crop")
    legend = Text()
    for stage, words in STAGE_WORDS.items():
        legend.append(*STYLES[stage]).append(f" {words}   ")
    yield legend
    if any(row.pods > 1 for row in timeline.rows):
        yield Text("a row of several Pods shows the slowest of them in each phase", "dim")
    yield Text(WHOLE_SECONDS, "dim")
