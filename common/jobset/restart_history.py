"""
The last restarts of a JobSet: `status.restartHistory`, the oldest first, in a bounded number of bytes.

An entry is written with the status write that ends its restart, or that fails the JobSet instead. The steps that a
restart cost are known when the run after it ends, so they come with the next entry. Pure; docs/adr/0100.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import msgspec
from msgspec import field
from msgspec.structs import replace

from inplace.common.jobset.causes import REASON_CHARS_MAX, Failure, trigger_of, unix_time
from inplace.common.jobset.failure_class import class_of
from inplace.common.jobset.furthest_behind import FurthestBehind
from inplace.common.jobset.goodput import Goodput
from inplace.common.jobset.last_restart import seconds_of
from inplace.common.jobset.status_record import StatusRecord
from inplace.common.jobset.verdict import Verdict, verdict_of
from inplace.common.protocol.resume import Resume
from inplace.common.wire.exit_words import PLAIN_REASON

FIELD: Final = "restartHistory"
ENTRIES_MAX: Final = 20
BYTES_MAX: Final = 4096  # as JSON; every status write carries them to whoever watches whole JobSets
WHOLE_SECONDS: Final = len("2026-01-01T00:00:00")
NAME_CHARS_MAX: Final = 253  # as the CRD has it, which would refuse the whole write, with S in it
LABEL_CHARS_MAX: Final = 63
LINE_CHARS_MAX: Final = 256


class PastRestart(StatusRecord, frozen=True):
    """One restart, or the failure after which none came.

    Args:
        epoch: that it led to, or would have.
        started_at: RFC 3339, whole seconds.
        took_ms: until every Pod was at `epoch`; None if that never came.
        decided_ms: of these, until the old epoch was deprecated: the failure was noticed and judged.
        request: the id, where a person asked for it.
        pod, node, exit_code, reason, last_line: of the first failure, as far as known; of a hang, the one Pod that was
            silent first.
        last_step: the last one of the Pod that was furthest behind when the old epoch ended.
        resume_step: from which the group went on, as its barrier decided; None where nobody could say.
        resume_kind: "local", each from its own copy, or "shared".
        observed: what would have been done about it and was not, such as "nodes+stall" (common/jobset/observing.py).
        lost_steps, cost_ms: steps made again after it, and the time that it cost in all; None while nobody knows.
    """

    epoch: int = 0
    scope: str = ""
    trigger: str = ""
    started_at: str = ""
    took_ms: int | None = field(default=None, name="tookMs")
    decided_ms: int | None = field(default=None, name="decidedMs")
    request: str = ""
    pod: str = ""
    node: str = ""
    exit_code: int | None = None
    reason: str = ""
    last_line: str = ""
    last_step: int | None = None
    resume_step: int | None = None
    resume_kind: str = ""
    observed: str = ""
    lost_steps: int | None = None
    cost_ms: int | None = field(default=None, name="costMs")

    def __str__(self) -> str:
        """Say how the epoch before it ended."""
        where = f" at step {self.last_step}" if self.last_step is not None else ""
        return f"epoch {self.epoch - 1} ended{where} ({self.verdict.culprit or self.trigger})"

    @property
    def verdict(self) -> Verdict:
        """Return what was to blame."""
        failure = Failure(self.pod, self.node, "", self.exit_code, self.reason, last_line=self.last_line)
        culprit = failure if self.pod else None
        return Verdict(class_of(trigger_of({"trigger": self.trigger}), culprit), culprit)

    @property
    def answers(self) -> tuple[str, ...]:
        """Return the kinds of answers that were told and not applied."""
        return tuple(filter(None, self.observed.split("+")))

    @property
    def cost_text(self) -> str:
        """Say what it cost, where that is known."""
        cost_s, steps = (self.cost_ms or 0) / 1000, self.lost_steps or 0
        return f"the restart to epoch {self.epoch} cost {cost_s:,.1f} s, in which {steps:,} steps were made again"


def past_restart(entry: Mapping[str, Any], silent: FurthestBehind | None, resume: Resume | None = None) -> PastRestart:
    """Return the record of a restart that `status.lastGroupRestart` tells of.

    Args:
        entry: with syncedAt, or without if the JobSet fails instead.
        silent: the Pods that were furthest behind when the old epoch ended; None if no Pod told.
        resume: from which step the new one goes on.
    """
    failure, seconds = verdict_of(entry, silent).culprit, seconds_of(entry)
    began_s, decided_s = unix_time(entry.get("startedAt")), unix_time(entry.get("deprecatedAt"))
    waited = None if began_s is None or decided_s is None else max(0, round((decided_s - began_s) * 1000))
    past = PastRestart(
        int(entry["epoch"]),
        str(entry.get("scope") or "")[:LABEL_CHARS_MAX],
        str(entry.get("trigger") or "")[:LABEL_CHARS_MAX],
        str(entry.get("startedAt") or "")[:WHOLE_SECONDS] + "Z",
        None if seconds is None else round(seconds * 1000),
        waited,
        str(entry.get("request") or "")[:LABEL_CHARS_MAX],
        last_step=silent.progress.step if silent is not None else None,
        resume_step=resume.step if resume is not None else None,
        resume_kind="" if resume is None else resume.kind,
    )
    if failure is None:
        return past
    reason = failure.reason if failure.reason != PLAIN_REASON or failure.exit_code is None else ""
    return replace(
        past,
        pod=failure.pod[:NAME_CHARS_MAX],
        node=failure.node[:NAME_CHARS_MAX],
        exit_code=failure.exit_code,
        reason=reason[:REASON_CHARS_MAX],
        last_line=failure.last_line[:LINE_CHARS_MAX],
    )


def history_of(status: Mapping[str, Any]) -> tuple[PastRestart, ...]:
    """Read status.restartHistory; what another program spoiled is passed over."""
    found = status.get(FIELD)
    entries = found if isinstance(found, list) else ()
    return tuple(past for past in map(PastRestart.read, entries) if past.epoch > 0)


def with_restart(old: Sequence[PastRestart], new: PastRestart) -> tuple[PastRestart, ...]:
    """Return the history with one entry more, or with another version of its last one."""
    rest = [past for past in old if (past.scope, past.epoch) != (new.scope, new.epoch)]
    return _fitting([*rest, new])


def with_cost(
    old: Sequence[PastRestart], scope: str, epoch: int, before: Goodput, after: Goodput
) -> tuple[PastRestart, ...]:
    """Return the history with what one restart cost, where it has that restart: by how much the sums grew."""
    cost_s = after.lost_s + after.restart_s - before.lost_s - before.restart_s
    told = {"lost_steps": after.lost_steps - before.lost_steps, "cost_ms": round(cost_s * 1000)}
    return _fitting(replace(past, **told) if (past.scope, past.epoch) == (scope, epoch) else past for past in old)


def fields_of(history: Iterable[PastRestart]) -> list[dict[str, Any]]:
    """Return status.restartHistory."""
    return [past.fields() for past in history]


def _fitting(history: Iterable[PastRestart]) -> tuple[PastRestart, ...]:
    """Keep to the bounds: the oldest entries lose their last lines and phases first, and then go themselves."""
    kept = list(history)[-ENTRIES_MAX:]
    sizes = [_bytes_of(past) for past in kept]
    spare = BYTES_MAX - len("[]") - sum(sizes)
    for number, past in enumerate(kept[:-1]):
        if spare >= 0:
            break
        kept[number] = replace(past, last_line="", decided_ms=None)
        spare += sizes[number] - _bytes_of(kept[number])
        sizes[number] = _bytes_of(kept[number])
    while spare < 0 and len(kept) > 1:
        spare += sizes.pop(0)
        del kept[0]
    return tuple(kept)


def _bytes_of(past: PastRestart) -> int:
    return len(msgspec.json.encode(past)) + len(",")
