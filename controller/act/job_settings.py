"""
Complete the Jobs that the plan builds, as this controller was started: an agent in their Pods, and a start window.

The JobSet's spec stays the user's: what is added stands on the Job (docs/adr/0088). Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from inplace.common.injection.depth import chosen_words, probed_words
from inplace.common.injection.finding import Finding
from inplace.common.injection.job import add_agent
from inplace.common.injection.pod import InjectOptions
from inplace.common.injection.pod_roles import Member
from inplace.common.injection.rights import shared_token
from inplace.common.jobset.fields import ReplicatedJob
from inplace.common.jobset.jobset import JobSet
from inplace.common.jobset.note import Note
from inplace.common.kube.resources import KubeObject
from inplace.common.wire import names as wire
from inplace.controller.plan.actions import CreateJob
from inplace.controller.plan.agent import wants_agent


@dataclass(frozen=True, slots=True)
class JobSettings:
    """What the controller's flags say about the Jobs that it creates.

    Args:
        start_window_s: over how many seconds large groups spread their starts, unless they say so themselves; None
            leaves it to the agents.
        agent: how to add the agent; None adds none.
        opt_in: add it only where the JobSet, or else its namespace, says `inplace.dev/agent: "on"`.
        is_asked_in: says of a namespace whether its label does; asked under `opt_in` alone.
        by_version: the agent is added as the API server's version has features for it.
    """

    start_window_s: int | None = None
    agent: InjectOptions | None = None
    opt_in: bool = False
    is_asked_in: Callable[[str], bool] = lambda _: False
    by_version: bool = False

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

    def notes_on(self, place: CreateJob, made: KubeObject, findings: Sequence[Finding]) -> Iterator[Note]:
        """Yield what a JobSet's author should know of a Job; all Jobs of a replicatedJob get the same words."""
        if findings:
            text = f"{findings[0]}; the Pods of job {place.name} cannot restart in place without an agent"
            yield Note("AgentNotAdded", text, warning=True)
        if findings or self.agent is None or not self._wants_agent(place):
            return
        if told := shared_token(made):
            yield Note("TokenReadable", told, warning=True)
        member = _member(place.jobset, place.job, made)
        if wire.RESTART_DEPTH not in place.manifest["spec"]["template"]["metadata"]["annotations"] and (
            told := chosen_words(member)
        ):
            yield Note("ContainersRestart", told)
        if told := probed_words(member):
            yield Note("WorkerProbedEarly", told, warning=True)

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
    """Add the agent where there is none; return what keeps it out. The template's form is checked: spec/form.py."""
    return list(add_agent(member, options)) if member.agent is None else []


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
