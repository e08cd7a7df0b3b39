"""`inplace timeline`: the last group restart as a picture on the terminal."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Final

from rich.text import Text

from inplace.cli.connection import Connection, command
from inplace.cli.group.last_restart import first_failure
from inplace.cli.group.pod_facts import PodFact
from inplace.cli.group.read import read_jobset, read_pods
from inplace.cli.group.scope_state import noun_of
from inplace.cli.group.state import GroupState, group_state
from inplace.cli.refusal import RefusalError
from inplace.cli.status.document import TRIGGERS, blame_text, failure_text
from inplace.cli.status.restart_timeline import STAGE_WORDS, RestartTimeline, Stage, restart_timeline
from inplace.cli.terminal.moments import count_text, duration_text
from inplace.cli.terminal.screen import Output, console, print_data, show
from inplace.cli.terminal.visible import one_line
from inplace.common.jobset.headline import ENDED
from inplace.common.protocol.members import Members

if TYPE_CHECKING:
    from inplace.cli.documents import TimelineDocument

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
