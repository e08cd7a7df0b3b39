"""
Say why actions failed: errors of our own, and refusals that only a person can cure, with when to try again.

A person cures a right, a quota, a template. A refusal for a missing right or quota concerns every action of its kind. A
refusal of an invalid Job concerns all Jobs of its replicatedJob, which share one template. With a thousand Jobs missing
that means one request after 1, 2, 4, ... 60 s.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from inplace.common.jobset.jobset import JobSet
from inplace.common.kube.clock import Clock
from inplace.common.kube.errors import ApiError, BadRequest, Forbidden, Invalid, ServerError, Throttled
from inplace.controller.plan.actions import Action, CreateJob, ResumeJob

ASK_AGAIN_S = 1.0  # the first wait; a person needs longer
ASK_AGAIN_S_MAX = 60.0  # the last one: who has granted a right sees its effect within a minute
BY_HAND: Final = (BadRequest, Forbidden, Invalid)  # the same request meets the same answer

Subject = tuple[type, str]  # an action's type, and a replicatedJob; "" for all actions of the type


class ForeignObjectError(Exception):
    """Somebody else's object has a name that we need; only its owner can make room."""

    def __init__(self, jobset: JobSet, kind: str, name: str) -> None:
        super().__init__(
            f"{kind} {name} exists and is not of this jobset (UID {jobset.uid}): expected a free name; "
            f"delete that {kind}, or rename the jobset; it is tried again with growing pauses"
        )


class ResourcesNotPropagatedError(Exception):
    """A Job cannot be resumed with the resources that its JobSet's template has by now.

    Attributes:
        cause: the server's answer.
    """

    def __init__(self, job: str, cause: ApiError) -> None:
        super().__init__(
            f"job {job}: expected the server to take the resources of the jobset's template, saw {cause}; the job "
            "stays suspended, and it is tried again with growing pauses. Ensure MutablePodResourcesForSuspendedJobs is "
            "enabled on the API server."
        )
        self.cause = cause.with_traceback(None)


class ActionsFailedError(Exception):
    """Some actions failed; the message says how many and the first error."""


@dataclass(frozen=True, slots=True)
class _Refusal:
    """One refusal: the version of the spec, and how long the request is not sent again."""

    generation: int | None
    until_s: float
    wait_s: float


@dataclass(slots=True)
class Refusals:
    """The refusals that stand, by JobSet; at most one for each type of action and each replicatedJob."""

    clock: Clock
    _standing: dict[str, dict[Subject, _Refusal]] = field(default_factory=dict)  # by JobSet UID

    def wait_s(self, jobset: JobSet, action: Action) -> float:
        """Return for how long `action` must not be asked for; 0.0 for no time, as after an edit of the spec."""
        standing = self._standing.get(jobset.uid)
        if standing is None:
            return 0.0
        now_s = self.clock.monotonic_s()
        refusals = (standing.get(subject) for subject in _subjects(action))
        return max((r.until_s - now_s for r in refusals if r and r.generation == jobset.generation), default=0.0)

    def note(self, jobset: JobSet, action: Action, error: Exception) -> None:
        """Take in why an action failed; twice as long a wait as the last one, if only a person can mend it."""
        if not isinstance(error, BY_HAND) or self.wait_s(jobset, action) > 0:
            return
        every, own = _subjects(action)
        subject = every if isinstance(error, Forbidden) else own
        standing = self._standing.setdefault(jobset.uid, {})
        last = standing.get(subject)
        wait_s = min(2 * last.wait_s, ASK_AGAIN_S_MAX) if last and last.generation == jobset.generation else ASK_AGAIN_S
        standing[subject] = _Refusal(jobset.generation, self.clock.monotonic_s() + wait_s, wait_s)

    def granted(self, jobset: JobSet, action: Action) -> None:
        """Forget the refusals of an action that was performed."""
        if (standing := self._standing.get(jobset.uid)) is not None:
            for subject in _subjects(action):
                standing.pop(subject, None)

    def forget(self, jobset_uid: str) -> None:
        """Drop what is remembered of a JobSet that is gone."""
        self._standing.pop(jobset_uid, None)


def least_wait_s(error: Exception) -> float:
    """Return the least wait before a pass that failed is tried again: the server's own, or a person's."""
    if isinstance(error, Throttled | ServerError):
        return error.after_s
    return ASK_AGAIN_S if isinstance(error, BY_HAND) else 0.0


def _subjects(action: Action) -> tuple[Subject, Subject]:
    """Return what a refusal of an action may concern: all of its type, or those that share its template."""
    kind = type(action)
    if isinstance(action, CreateJob | ResumeJob):
        place = action if isinstance(action, CreateJob) else action.place
        return (kind, ""), (kind, place.job.name)
    return (kind, ""), (kind, "")
