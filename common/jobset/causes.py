"""
Why a group restarts: the first sign of the failure, and its words for people.

Each scope has one cause, from the first sign to the sync of the next epoch. The signs come from the API server: a dead
worker shows as a container's exit code, as a Pod that goes away, or only as its Pod's next announcement.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from typing import Any, Final

from msgspec.structs import replace

from inplace.common.jobset.status_record import StatusRecord
from inplace.common.wire.exit_words import exit_words
from inplace.common.wire.notice import LOSS, SLOW, STALL, STEPS

MESSAGE_CHARS_MAX: Final = 512  # of a failure; it goes into every copy of the JobSet, and kubelet allows 4096
REASON_CHARS_MAX: Final = 128
COMPLETED: Final = "Completed"  # the reason of a Pod that completed while others went on


class Trigger(Enum):
    """What brings a group restart about; a label's value, so closed."""

    WORKER_EXIT = "worker_exit"  # a worker ended, or announced the next epoch by itself
    STALLED = "stalled"  # a worker hangs: its agent told
    LOSS_NOT_FINITE = "loss_not_finite"  # of a worker that runs, as its agent told
    SLOW = "slow"  # steps got slower, as the agent of one Pod told
    POD_LOST = "pod_lost"  # deleted, or its end was not seen
    DISRUPTED = "disrupted"  # evicted, preempted, drained, or deleted because of its node: not counted
    COMPLETED_EARLY = "completed_early"  # a worker completed, and those that went on failed
    JOB_FAILED = "job_failed"  # the failure policy recreates Jobs
    MANUAL = "manual"  # a person asked for it
    MEMBERS = "members"  # spares make the group larger, or take the place of members that leave their nodes
    RESIZE = "resize"
    RESUME = "resume"  # of a suspended JobSet
    JOIN = "join"  # a replicatedJob whose turn came joins the group
    UNKNOWN = "unknown"  # the controller changed meanwhile

    @property
    def is_failure(self) -> bool:
        """Say whether the group stands still from the first sign on."""
        return self in (
            Trigger.WORKER_EXIT,
            Trigger.STALLED,
            Trigger.LOSS_NOT_FINITE,
            Trigger.SLOW,
            Trigger.POD_LOST,
            Trigger.DISRUPTED,
            Trigger.JOB_FAILED,
            Trigger.COMPLETED_EARLY,
        )

    @property
    def reason(self) -> str:
        """Return it as the reason of a condition."""
        return self.value.title().replace("_", "")


OF_NOTICES: Final[Mapping[str, tuple[Trigger, str]]] = {
    LOSS: (Trigger.LOSS_NOT_FINITE, Trigger.LOSS_NOT_FINITE.reason),
    SLOW: (Trigger.SLOW, Trigger.SLOW.reason),
    STEPS: (Trigger.SLOW, "SlowSteps"),
    STALL: (Trigger.STALLED, Trigger.STALLED.reason),
}
"""By kind of notice: what a restart because of it is for, and the reason of its first failure."""


class Failure(StatusRecord, frozen=True):
    """The Pod and container that failed first, as far as it is known.

    Args:
        container: "" when the Pod as a whole was lost, its exit was not seen, or the Pod has several workers.
        exit_code: of the container; None when nobody saw it.
        reason: one word: the container's, the Pod's, or that of the disruption.
        message: in words, shortened.
        finished_at: when the container ended, by its node's clock; RFC 3339.
        last_line: of what its worker wrote, as `common.wire.last_line` cleans it; "" if nobody knows.
    """

    pod: str = ""
    node: str = ""
    container: str = ""
    exit_code: int | None = None
    reason: str = ""
    message: str = ""
    finished_at: str = ""
    last_line: str = ""

    def fields(self) -> dict[str, Any]:
        """Return status.lastGroupRestart.firstFailure."""
        short = replace(self, reason=self.reason[:REASON_CHARS_MAX], message=self.message[:MESSAGE_CHARS_MAX])
        return StatusRecord.fields(short)

    def __str__(self) -> str:
        """Say who failed and how, for a person."""
        who = f"pod {self.pod}" if self.pod else "an unknown pod"
        if self.node:
            who += f" on node {self.node}"
        how = self.reason
        if self.exit_code is not None:
            worker = f"container {self.container}" if self.container else "its worker"
            words = exit_words(self.exit_code, self.reason)
            is_plain = words.startswith("exit code")
            how = f"{worker} exited with{words.removeprefix('exit code')}" if is_plain else f"{worker} {words}"
        return ": ".join(part for part in (who, how, self.message[:MESSAGE_CHARS_MAX], self.last_line) if part)


@dataclass(frozen=True, slots=True)
class Cause:
    """Why the next group restart of a scope comes, or is under way.

    Args:
        seen_at: when the first sign was seen, by our clock; RFC 3339.
        seen_s: the same, monotonic; None while it is not noted.
        detected_after_s: from the container's end to its sign here; None when its node's clock cannot be believed.
        request: the id of a manual restart.
    """

    trigger: Trigger
    seen_at: str
    seen_s: float | None = None
    failure: Failure | None = None
    detected_after_s: float | None = None
    request: str = ""

    @property
    def is_of_the_pod(self) -> bool:
        """Say whether it was the worker of the Pod that is named: it exited, or is slow in its own work.

        Any Pod of a group may be the first to tell that steps are slow, that the loss is bad, or that a peer hangs.
        """
        if self.trigger is Trigger.SLOW and self.failure is not None:
            return self.failure.reason == Trigger.SLOW.reason
        return self.trigger is Trigger.WORKER_EXIT

    @property
    def may_be_of_the_node(self) -> bool:
        """Say whether it says something of the node: a Pod that was deleted or evicted does not."""
        return self.is_of_the_pod or self.trigger is Trigger.STALLED

    def __str__(self) -> str:
        """Say it in one line."""
        words = _WORDS[self.trigger]
        if self.request:
            words += f" (request {self.request})"
        return f"{words}: {self.failure}" if self.failure is not None else words


_WORDS: Final[Mapping[Trigger, str]] = {
    Trigger.WORKER_EXIT: "a worker exited",
    Trigger.STALLED: "a worker hangs",
    Trigger.LOSS_NOT_FINITE: "the loss is no finite number",
    Trigger.SLOW: "steps got slower",
    Trigger.POD_LOST: "a pod was lost",
    Trigger.DISRUPTED: "a pod was evicted (not counted)",
    Trigger.COMPLETED_EARLY: "a worker completed while others went on",
    Trigger.JOB_FAILED: "a job failed",
    Trigger.MANUAL: "a person asked for it",
    Trigger.MEMBERS: "spares become members",
    Trigger.RESIZE: "the group was resized",
    Trigger.RESUME: "the jobset was resumed",
    Trigger.JOIN: "a replicatedJob joins",
    Trigger.UNKNOWN: "the cause is unknown",
}


def unix_time(text: object) -> float | None:
    """Read a time of the status; None when there is none, or it is unreadable."""
    try:
        return datetime.fromisoformat(str(text)).timestamp()
    except ValueError:
        return None


def trigger_of(entry: Mapping[str, Any]) -> Trigger:
    """Read the trigger of a status.lastGroupRestart."""
    try:
        return Trigger(entry.get("trigger"))
    except ValueError:
        return Trigger.UNKNOWN


def failure_of_entry(entry: Mapping[str, Any]) -> Failure | None:
    """Read the first failure of a status.lastGroupRestart."""
    found = entry.get("firstFailure")
    return Failure.read(found) if isinstance(found, Mapping) else None
