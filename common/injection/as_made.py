"""Look at a JobSet as our controller will make its Jobs: with the agent where it has none (docs/adr/0088). Pure."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import replace
from typing import Final

from inplace.common.bare.record import record
from inplace.common.injection.agent_pieces import JOB_FIELDS
from inplace.common.injection.finding import Finding
from inplace.common.injection.job import add_agent, change_job
from inplace.common.injection.pod import InjectOptions
from inplace.common.injection.pod_roles import group_of, is_in_place
from inplace.common.jobset.settings import AGENT
from inplace.common.kube.resources import KubeObject
from inplace.common.wire import names as wire

DEFAULT: Final = InjectOptions()


@record
class AsMade:
    """A JobSet to judge.

    Args:
        jobset: as the Jobs will be; without the agent where that cannot be added.
        is_added: the controller adds the agent, and the rights of the Pods' account.
        findings: what keeps the agent out.
    """

    jobset: KubeObject
    is_added: bool = False
    findings: tuple[Finding, ...] = ()


def as_made(jobset: KubeObject, options: InjectOptions = DEFAULT) -> AsMade:
    """Return a JobSet as its Jobs are made: one that restarts in place and has no agent gets one."""
    annotations = (jobset.get("metadata") or {}).get("annotations") or {}
    if not is_in_place(jobset) or AGENT.read_or_default(annotations).get("added") == wire.AGENT_OFF:
        return AsMade(jobset)
    if not (group := group_of(jobset)) or any(member.agent is not None for member in group):
        return AsMade(jobset)
    made = deepcopy(jobset)
    findings = list[Finding]()
    for member in group_of(made):
        member.job_spec.update(JOB_FIELDS)
        findings += add_agent(member, options)
    if not findings:
        return AsMade(made, is_added=True)
    made = deepcopy(jobset)  # without the halves of an agent
    for member in group_of(made):
        member.job_spec.update(JOB_FIELDS)
        list(change_job(member))  # what it finds is among the findings
    return AsMade(made, findings=tuple(replace(finding, rule="agent-not-added") for finding in findings))
