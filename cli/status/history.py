"""`inplace history`: the last restarts of a JobSet, as its status keeps them; one request, also after its end."""

from __future__ import annotations

import sys
from collections.abc import Hashable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Final

from inplace.cli.connection import Connection, command
from inplace.cli.group.read import read_jobset
from inplace.cli.group.state import state_of_status
from inplace.cli.status.document import TRIGGERS, class_text, failure_text
from inplace.cli.terminal.moments import count_text, duration_text
from inplace.cli.terminal.screen import Output, print_data
from inplace.cli.terminal.visible import one_line
from inplace.common.jobset.causes import trigger_of
from inplace.common.jobset.restart_history import FIELD, PastRestart, history_of
from inplace.common.jobset.scopes import CRD_CURE
from inplace.common.kube.resources import KubeObject
from inplace.common.wire import names as wire
from inplace.common.wire.exit_words import ended_with

if TYPE_CHECKING:
    from inplace.cli.documents import FailureFields, HistoryDocument, PastRestartFields

NO_FIELD: Final = (
    f"its status has no {FIELD}: the controller or the CustomResourceDefinition is older than this command. Update "
    f"both ({CRD_CURE}); restarts from then on are kept"
)
COLUMNS: Final = ("EPOCH", "BEGAN (UTC)", "TOOK", "AT STEP", "COST")
INDENT: Final = 7  # of the reason


@command
async def run_history(connection: Connection, name: str, *, output: Output) -> None:
    """Print the last restarts of a JobSet."""
    raw = await read_jobset(connection, name)
    data, lines = history_data(raw), why_empty(raw)
    if output != "table":
        print_data(data, output)
    elif data["restarts"]:
        print(*history_lines(data["restarts"]), sep="\n")
        if words := repeats_text(history_of(raw.get("status") or {})):
            print(words)
    if lines:
        print(f"inplace history: JobSet {name} {lines}", file=sys.stderr)


def why_empty(raw: KubeObject) -> str:
    """Say why there is nothing to show; "" where there is something."""
    status = raw.get("status") or {}
    if history_of(status):
        return ""
    state = state_of_status(raw)
    if state.managed_by is not None:
        return f"is managed by another controller, {state.managed_by}, which keeps no restarts"
    if state.jobset is not None and not state.jobset.is_in_place:
        return "does not restart in place, and other restarts are not kept"
    last = status.get(wire.LAST_GROUP_RESTART) or {}
    has_restarted = "syncedAt" in last or any(scope.synced > 1 for scope in state.scopes)
    return f"has restarted, and {NO_FIELD}" if has_restarted else "has not restarted in place yet"


def history_data(raw: KubeObject) -> HistoryDocument:
    """Return the restarts for programs, the oldest first."""
    state = state_of_status(raw)
    return {
        "namespace": state.namespace,
        "name": state.name,
        "phase": state.phase.value,
        "restarts": [past_data(past) for past in history_of(raw.get("status") or {})],
    }


def past_data(past: PastRestart) -> PastRestartFields:
    """Return one restart for programs; None for what is not known."""
    failure: FailureFields = {
        "pod": past.pod or None,
        "node": past.node or None,
        "exitCode": past.exit_code,
        "reason": past.reason or None,
        "lastLine": past.last_line or None,
    }
    return {
        "epoch": past.epoch,
        "scope": past.scope or None,
        "trigger": past.trigger,
        "startedAt": past.started_at,
        "seconds": _seconds(past.took_ms),
        "decidedSeconds": _seconds(past.decided_ms),
        "request": past.request or None,
        "failureClass": past.verdict.found.value if trigger_of({"trigger": past.trigger}).is_failure else None,
        "firstFailure": failure if any(value is not None for value in failure.values()) else None,
        "lastStep": past.last_step,
        "resumeStep": past.resume_step,
        "resumeKind": past.resume_kind or None,
        "observed": list(past.answers),
        "lostSteps": past.lost_steps,
        "costSeconds": _seconds(past.cost_ms),
    }


def history_lines(rows: Iterable[PastRestartFields]) -> Iterator[str]:
    """Yield what `past_data` returned: a line with the numbers of each restart, below it the reason."""
    rows = list(rows)
    table = [COLUMNS, *map(_numbers, rows)]
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    texts = ["  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in table]
    yield texts[0]
    for row, text in zip(rows, texts[1:], strict=True):
        why = TRIGGERS.get(row["trigger"], row["trigger"])
        why += f" (request {row['request']})" if row["request"] else ""
        if (failure := row["firstFailure"]) is not None:
            why += f": {failure_text(failure)}{class_text(row['trigger'], failure)}"
        why += "" if row["resumeStep"] is None else f"; went on from the {row['resumeKind']} step {row['resumeStep']:,}"
        why += f"; not done, only told: {', '.join(row['observed'])}" if row["observed"] else ""
        yield text
        yield f"{' ' * INDENT}{one_line(why)}"


def _numbers(row: PastRestartFields) -> tuple[str, ...]:
    epoch = str(row["epoch"]) + (f" of {row['scope']}" if row["scope"] else "")
    took = duration_text(row["seconds"]) if row["seconds"] is not None else "never came"
    step = "-" if row["lastStep"] is None else f"{row['lastStep']:,}"
    began = row["startedAt"].replace("T", " ").removesuffix("Z")
    return tuple(map(one_line, (epoch, began, took, step, _cost(row))))


def _cost(row: PastRestartFields) -> str:
    if row["costSeconds"] is None:
        return "-"
    return f"{duration_text(row['costSeconds'])}, {count_text(row['lostSteps'] or 0, 'step')}"


def repeats_text(history: Sequence[PastRestart]) -> str:
    """Say what the newest failures in a row have in common; "" for nothing, and for fewer than two."""
    failures: list[PastRestart] = []
    for past in reversed(history):
        if not trigger_of({"trigger": past.trigger}).is_failure or (failures and past.trigger != failures[0].trigger):
            break
        failures.append(past)
    common = [
        text
        for text in (
            _common([past.last_step for past in failures], "at step {}"),
            _common([None if past.exit_code is None else ended_with(past.exit_code) for past in failures], "{}"),
            _common([past.pod or None for past in failures], "in Pod {}"),
            _common([past.node or None for past in failures], "on node {}"),
            _common([past.last_line or None for past in failures], 'saying "{}"'),
        )
        if text
    ]
    if len(failures) < 2 or not common:
        return ""
    return f"{len(failures)} failures in a row, always {', '.join(common)}"


def _common(values: Sequence[Hashable], words: str) -> str:
    """Put into words what all values are; "" if they differ. The newest may be unknown: its Pods went at once."""
    known = values[1:] if values and values[0] is None else values
    return words.format(known[0]) if len(known) > 1 and len(set(known)) == 1 and known[0] is not None else ""


def _seconds(milliseconds: int | None) -> float | None:
    return None if milliseconds is None else milliseconds / 1000
