"""
Complete the Jobs that the plan builds, as this controller was started: an agent in their Pods, and a start window.

The JobSet's spec stays the user's: what is added stands on the Job (docs/adr/0088). Pure.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from inplace.common.kube.resources import KubeObject
from inplace.common.wire import names as wire
from inplace.controller.injection.finding import Finding, refusal
from inplace.controller.injection.job import add_agent
from inplace.controller.injection.pod import InjectOptions
from inplace.controller.injection.pod_roles import Member
from inplace.controller.plan.actions import CreateJob, CreateSpares
from inplace.controller.plan.agent import wants_agent
from inplace.controller.plan.spare_job import build_spares
from inplace.controller.spec.fields import ReplicatedJob
from inplace.controller.spec.jobset import JobSet

UNREADABLE: Final = (TypeError, AttributeError, KeyError, ValueError)


@dataclass(frozen=True, slots=True)
class JobSettings:
    """What the controller's flags say about the Jobs that it creates.

    Args:
        start_window_s: over how many seconds large groups spread their starts, unless they say so themselves; None
            leaves it to the agents.
        agent: how to add the agent; None adds none.
        opt_in: add it only where the JobSet, or else its namespace, says `inplace.dev/agent: "on"`.
        is_asked_in: says of a namespace whether its label does; asked under `opt_in` alone.
    """

    start_window_s: int | None = None
    agent: InjectOptions | None = None
    opt_in: bool = False
    is_asked_in: Callable[[str], bool] = lambda _: False

    def adds_by_default(self, namespace: str) -> bool:
        """Say whether JobSets of a namespace that say nothing get the agent."""
        return not self.opt_in or self.is_asked_in(namespace)

    def manifest_of(self, place: CreateJob) -> tuple[KubeObject, list[Finding]]:
        """Return the Job of a place, complete; without an agent where something keeps it out: the findings say what."""
        built = self._built(place)
        if self.agent is None or not self._wants_agent(place):
            return built, []
        findings = _added(_member(place.jobset, place.job, built), self.agent)
        return (self._built(place), findings) if findings else (built, [])

    def spares_of(self, action: CreateSpares) -> KubeObject:
        """Return the Job of the spares; they ask for what the Pods do, their agents included.

        The plan wants spares only where there is an agent's image.
        """
        assert self.agent is not None, "expected an agent's image where spares are planned, saw none"
        made, _ = self.manifest_of(action.place)
        return build_spares(action, made, self.agent.agent_image, pulls=not self.agent.copies_image)

    def member_of(self, place: CreateJob) -> Member | None:
        """Return the Pods of a place as they are made; None where this controller adds no agent to them."""
        built, findings = self.manifest_of(place)
        is_without = self.agent is None or findings or not self._wants_agent(place)
        return None if is_without else _member(place.jobset, place.job, built)

    def _wants_agent(self, place: CreateJob) -> bool:
        by_default = self.adds_by_default(place.jobset.namespace)
        return wants_agent(place.jobset, place.job, by_default=by_default)

    def _built(self, place: CreateJob) -> KubeObject:
        built = place.manifest
        if self.start_window_s is not None:
            annotations = built["spec"]["template"]["metadata"]["annotations"]
            annotations.setdefault(wire.START_WINDOW, str(self.start_window_s))
        return built


def _added(member: Member, options: InjectOptions) -> list[Finding]:
    """Add the agent where there is none; return what keeps it out."""
    try:
        return list(add_agent(member, options)) if member.agent is None else []
    except UNREADABLE as error:  # a definition without our schema stores any form; the API server refuses the Job
        found = f"a form that nobody can read ({type(error).__name__}: {error})"
        return [refusal(member.pod_path, found, "a Pod template", "correct it: inplace lint -f FILE")]


def _member(jobset: JobSet, job: ReplicatedJob, built: KubeObject) -> Member:
    place = next(place for place, one in enumerate(jobset.replicated_jobs) if one.name == job.name)
    raw = {
        "name": job.name,
        "replicas": job.replicas,
        "template": {"metadata": {"annotations": dict(job.form.annotations)}, "spec": built["spec"]},
    }
    metadata = {"name": jobset.name, "annotations": jobset.annotations}
    return Member(raw, f"spec.replicatedJobs[{place}]", metadata)


DEFAULT: Final = JobSettings()
