"""
Say which Pods get the agent from the controller, where it was started with an agent's image.

What a JobSet says wins over its namespace, and that over the controller's default (docs/adr/0089).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from inplace.common.jobset.fields import ReplicatedJob
from inplace.common.jobset.jobset import JobSet
from inplace.common.jobset.settings import AGENT
from inplace.common.wire import names as wire
from inplace.controller.plan.actions import BindAgents
from inplace.controller.plan.draft import Draft


def wants_agent(jobset: JobSet, job: ReplicatedJob, *, by_default: bool) -> bool:
    """Say whether the controller adds the agent to these Pods where their template has none.

    Args:
        jobset: whose Pods they are.
        job: of the JobSet.
        by_default: it adds them to JobSets of this namespace that say nothing.
    """
    return jobset.is_in_place and asks_for_agent(jobset.annotations, by_default=by_default) and not job.has_opted_out


def asks_for_agent(annotations: Mapping[str, Any], *, by_default: bool) -> bool:
    """Say whether a JobSet's annotations ask for agents, or leave it to the default.

    The annotation for restarts in place asks, too: no other controller knows it.
    """
    said = AGENT.read_or_default(annotations).get("added")
    is_asked = by_default or wire.RESTART_IN_PLACE in annotations
    return said == wire.AGENT_ON or (is_asked and said != wire.AGENT_OFF)


# Give the agents of a JobSet their rights, once a Pod of theirs was admitted (docs/adr/0087).
#
# Quotas and Pod Security have then let somebody run Pods with this account. Before that, a JobSet is only a wish:
# whoever may create JobSets could name any account of the namespace.


def bind_agents(draft: Draft) -> bool:
    """Ask for the rights of each account with which an agent is about to announce.

    Asked for in each pass, FIRST of all actions: agents wait for it. The executor remembers what it gave.
    """
    jobset, observed = draft.jobset, draft.observed
    if not observed.adds_agents:  # agents that stand in manifests bring their own rights
        return False
    agents = {
        job.name: wants_agent(jobset, job, by_default=observed.agents_by_default) for job in jobset.replicated_jobs
    }
    for account in sorted({account for job, account in observed.accounts if agents.get(job)}):
        draft.add(BindAgents(account))
    return False
