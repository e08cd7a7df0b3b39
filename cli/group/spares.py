"""Say how many spares of a JobSet are ready, and why the others are not. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from inplace.cli.group.pod_facts import PodFact
from inplace.common.jobset.jobset import JobSet
from inplace.common.jobset.spares import spares_name

if TYPE_CHECKING:
    from inplace.cli.documents import SparesFields


@dataclass(frozen=True, slots=True)
class Spares:
    """The spares of a JobSet.

    Args:
        wanted: how many are held when all is well.
        ready: how many run.
        waiting: how many others there are or should be, by why they wait.
    """

    wanted: int
    ready: int
    waiting: Mapping[str, int] = field(default_factory=dict)

    def fields(self) -> SparesFields:
        """Return them for programs."""
        return {"wanted": self.wanted, "ready": self.ready, "waiting": dict(self.waiting)}

    def __str__(self) -> str:
        """Say it in a line."""
        waits = ((why, count, "waits" if count == 1 else "wait") for why, count in self.waiting.items())
        others = "".join(f"; {count:,} {verb}: {why}" for why, count, verb in waits)
        return f"{self.ready:,} of {self.wanted:,} {'spare is' if self.wanted == 1 else 'spares are'} ready{others}"


def spares_of(jobset: JobSet, pods: Iterable[PodFact]) -> Spares | None:
    """Return how a JobSet's spares are; None where it wants none now.

    Args:
        jobset: as stored.
        pods: its spares.
    """
    wanted = jobset.spares
    if not wanted or jobset.suspended or jobset.is_finished:
        return None
    if not all(scope.synced for scope in jobset.scopes.values()):
        return Spares(wanted, 0, {"they are made when the group runs for the first time": wanted})
    living = [pod for pod in pods if pod.status.phase in ("Pending", "Running") and not pod.is_leaving]
    ready = sum(pod.status.phase == "Running" for pod in living)
    waiting = Counter(_why(pod) for pod in living if pod.status.phase == "Pending")
    if (missing := wanted - len(living)) > 0:
        job = f"kubectl describe job {spares_name(jobset.name)} -n {jobset.namespace}"
        waiting[f"its Job has not made it yet, or may not: {job}"] += missing
    return Spares(wanted, ready, dict(waiting.most_common()))


def _why(pod: PodFact) -> str:
    """Say why a spare does not run yet."""
    scheduled = pod.condition("PodScheduled")
    if scheduled is not None and scheduled.status == "False" and scheduled.message:
        return scheduled.message
    blocked = next((one.blocked for one in pod.workers if one.blocked is not None), None)
    if blocked is not None:
        return f"{blocked.what}: {blocked.detail}"
    return "its images are pulled" if pod.spec.node_name else "it has no node yet"
