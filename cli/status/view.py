"""Show JobSets' statuses to people: one whole, or all of a namespace, one line each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from inplace.cli.group.notices import notice_lines
from inplace.cli.group.scope_state import ScopeState, members_text, ranks_text, resume_text
from inplace.cli.group.state import GroupState
from inplace.cli.group.straggler import Why
from inplace.cli.status.document import TRIGGERS, blame_text, list_data, recreated_text, slow_text
from inplace.cli.terminal.moments import count_text, duration_text
from inplace.cli.terminal.screen import plain_table
from inplace.cli.terminal.visible import one_line
from inplace.common.jobset.causes import unix_time
from inplace.common.jobset.goodput import goodput_text
from inplace.common.jobset.headline import ENDED, WAITING, GroupPhase
from inplace.common.kube.resources import KubeObject

BAR_COLUMNS_MAX = 40
NARROW = 60  # columns: a name and its reason no longer fit on one line
NAMES_SHOWN = 10  # of those who are waited for; `-o json` has them all
STYLES = {
    GroupPhase.RUNNING: "green",
    GroupPhase.COMPLETED: "green",
    GroupPhase.STARTING: "yellow",
    GroupPhase.RESTARTING: "yellow",
    GroupPhase.RECREATING: "yellow",
    GroupPhase.DEGRADED: "red",
    GroupPhase.FAILED: "red",
    GroupPhase.UNREADABLE: "red",
}


def status_picture(state: GroupState, *, now_s: float, columns: int, line: str = "") -> RenderableType:
    """Return the picture of one JobSet.

    Args:
        state: what to show.
        now_s: wall time.
        columns: how wide the terminal is.
        line: the headline; "" where it would say less than is known elsewhere.
    """
    title = Text.assemble((f"{state.namespace}/{state.name}", "bold"), "  ")
    title.append(state.phase.value, STYLES.get(state.phase, ""))
    parts: list[RenderableType] = [
        title,
        *([Text(one_line(line), "bold")] if line else []),
        *(Text(one_line(line)) for line in _notes(state)),
    ]
    if state.phase not in (*ENDED, GroupPhase.SUSPENDED):
        for scope in state.scopes:
            parts += _scope(scope, columns, state.left_s(now_s))
        parts += [Text(one_line(line), "yellow") for line in notice_lines(state.notices, now_s)]
    if state.stuck:
        parts.append(Text(one_line(f"barrier stuck: {state.stuck}"), "red"))
    parts += [Text(one_line(line)) for line in _history(state, now_s)]
    if state.late and state.phase in WAITING:  # last: a low terminal cuts names only
        late, shown = state.late, len(state.stragglers) + state.unnamed
        of = f"{late:,} of " if late < shown else ""  # spares: not all of them are needed
        words = f"waiting for {of}{count_text(shown if of else late, 'Pod')}"
        parts += [Text(""), Text(words, "bold"), *_late(state, columns)]
    return Group(*parts)


def list_picture(jobsets: Iterable[KubeObject], *, now_s: float, everywhere: bool = False) -> Table:
    """Return the table; of several namespaces, with their names."""
    places = ("NAMESPACE",) if everywhere else ()
    table = plain_table(*places, "JOBSET", "PHASE", "EPOCH", "JOBS READY", "RESTARTS", "AGE", "WAITS FOR")
    for raw in sorted(jobsets, key=lambda raw: (raw["metadata"].get("namespace", ""), raw["metadata"]["name"])):
        row = list_data(raw)
        age_s = unix_time(raw["metadata"].get("creationTimestamp"))
        table.add_row(
            *((row["namespace"],) if everywhere else ()),
            row["name"],
            Text(row["phase"], STYLES.get(GroupPhase(row["phase"]), "")),
            "/".join(str(epoch) for epoch in row["epochs"]) or "-",
            f"{row['jobsReady']}/{row['jobs']}",
            "-" if row["restarts"]["used"] is None else f"{row['restarts']['used']}/{row['restarts']['max']}",
            "-" if age_s is None else duration_text(now_s - age_s),
            one_line(row["waitsFor"] or ""),
        )
    return table


def _notes(state: GroupState) -> Iterator[str]:
    """Yield what must be known BEFORE the numbers are read."""
    conditions = state.conditions or {}
    if state.managed_by is not None:
        yield f"managed by {state.managed_by}: our controller leaves it alone"
    if state.phase is GroupPhase.OTHER:
        yield f"{count_text(state.pods, 'Pod')}; it does not restart in place (failurePolicy.restartStrategy)"
    if state.not_due:
        yield f"not started yet, by startup order: {', '.join(state.not_due)}"
    for kind in ("Failed", "Unreadable", "SpecProblem", "ContainersBlocked", "RestartsInVain", "RestartingJobSet"):
        if kind in conditions:
            yield f"{kind}: {conditions[kind].get('message', '')}"


def _scope(scope: ScopeState, columns: int, left_s: float | None) -> Iterator[RenderableType]:
    """Yield one scope: a line, a bar, and a row for each epoch."""
    name = f"{scope.name}: " if scope.name else ""
    line = f"{name}epoch {scope.target} · {scope.arrived:,} of {count_text(scope.expected, scope.noun)}"
    if scope.phase in (GroupPhase.RUNNING, GroupPhase.DEGRADED):
        line += f" · {scope.working:,} working"
    elif left_s is not None and scope.phase in (GroupPhase.STARTING, GroupPhase.RESTARTING):
        line += f" · about {duration_text(left_s)} left"
    yield Text(line + members_text(scope))
    for words in filter(None, (ranks_text(scope), resume_text(scope))):
        yield Text(f"  {words}")
    if scope.phase is not GroupPhase.RUNNING:
        width = min(BAR_COLUMNS_MAX, max(10, columns - 10))
        done = width * scope.arrived // max(scope.expected, 1)
        share = scope.arrived / max(scope.expected, 1)
        percent = "100" if share == 1 else f"{min(share * 100, 99.9):.1f}"  # not 100 before the last one is there
        yield Text.assemble(("━" * done, "green"), ("━" * (width - done), "dim"), f" {percent} %")
    if set(scope.epochs) != {scope.target}:
        yield _histogram(scope, columns)


def _histogram(scope: ScopeState, columns: int) -> RenderableType:
    """Return one bar for each epoch that some Pod announced, and one for slots without a Pod."""
    rows = [(f"epoch {epoch}" if epoch else "announced nothing", count) for epoch, count in scope.epochs.items()]
    missing = scope.expected - sum(scope.epochs.values())
    rows += [("no live Pod", missing)] if missing > 0 else []
    width = min(BAR_COLUMNS_MAX, max(4, columns - 30))
    table = Table.grid(padding=(0, 1))
    table.add_column()
    table.add_column(justify="right")
    table.add_column()
    for name, count in rows:
        table.add_row(f"  {name}", f"{count:,}", "█" * max(1, count * width // max(scope.expected, 1)) if count else "")
    return table


def _late(state: GroupState, columns: int) -> Iterator[RenderableType]:
    """Yield those who are waited for: few by name, many by reason; where it is narrow, the reason below the name."""
    late = state.stragglers
    if len(late) > NAMES_SHOWN:
        reasons = Counter(one.why.value for one in late) + Counter({Why.MISSING.value: state.unnamed})
        yield from (Text(f"  {count:,} {why}") for why, count in reasons.most_common())
        yield Text(f"  the first {NAMES_SHOWN} of them:")
    for one in late[:NAMES_SHOWN]:
        if columns < NARROW:
            yield Text(f"  {one.name}")
            yield Text(f"    {one.reason}")
        else:
            yield Text(f"  {one.name}  {one.reason}")


def _history(state: GroupState, now_s: float) -> Iterator[str]:
    """Yield what went before."""
    if state.used is not None:
        yield f"restarts {state.used} of {state.allowed}"
    for scope in state.scopes:
        if scope.goodput is not None and (words := goodput_text(scope.goodput)):
            yield f"{scope.name}: {words}" if scope.name else words
    last = state.last
    if last is None:
        return
    began, ended = unix_time(last.started_at), unix_time(last.synced_at)
    whose = f" of scope {last.scope}" if last.scope else ""
    line = f"last restart{whose}: {TRIGGERS.get(last.trigger or '', last.trigger or 'cause unknown')}"
    if blame := blame_text(last):
        line += f", {blame}"
    if began is not None:
        line += (
            f", {duration_text(now_s - began)} ago"
            if ended is not None
            else f", began {duration_text(now_s - began)} ago"
        )
    if last.seconds is not None:
        line += f", took {duration_text(last.seconds)}"
    yield line
    if words := recreated_text(state):
        yield words
    if last.slow is not None:
        yield slow_text(last.slow)
