"""
Give the agents of a JobSet their rights, once a Pod of theirs was admitted (docs/adr/0087).

Quotas and Pod Security have then let somebody run Pods with this account. Before that, a JobSet is only a wish: whoever
may create JobSets could name any account of the namespace.
"""

from __future__ import annotations

from inplace.controller.plan.actions import BindAgents
from inplace.controller.plan.agent import wants_agent
from inplace.controller.plan.draft import Draft


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
