"""
Give the agents of a JobSet their right: one RoleBinding to the ClusterRole `inplace-agent` (docs/adr/0087).

Nothing watches RoleBindings. The binding is created before each batch of Jobs, and one that exists is enough: its name
has a part of the JobSet's UID, so a binding that goes with an earlier JobSet of the same name is another one, and the
accounts never change, because templates do not.
"""

from __future__ import annotations

from typing import Final

from inplace.common.kube.resources import ROLE_BINDINGS, KubeObject
from inplace.controller.plan.actions import BindAgents
from inplace.controller.plan.agent import wants_agent
from inplace.controller.plan.draft import Draft
from inplace.controller.plan.jobs import owner_reference
from inplace.controller.spec.jobset import JobSet

ROLE: Final = "inplace-agent"  # the ClusterRole of deploy/rbac/agents.yaml
NAME_CHARACTERS_MAX: Final = 253
UID_CHARACTERS: Final = 8  # the first ones, which are random: two lives of one name meet once in 4 billion times


def bind_agents(draft: Draft) -> bool:
    """Create the binding where this pass creates Jobs whose agents need it."""
    jobset = draft.jobset
    observed = draft.observed
    by_default = observed.agents_by_default
    if draft.creates_jobs and needs_binding(jobset, adds_agents=observed.adds_agents, by_default=by_default):
        draft.add(BindAgents(build_binding(jobset, accounts_of(jobset, by_default=by_default))))
    return False


def needs_binding(jobset: JobSet, *, adds_agents: bool, by_default: bool) -> bool:
    """Say whether agents announce by a right that the controller gives them.

    Args:
        jobset: whose Pods they are in.
        adds_agents: the controller adds agents to Pods. Without, agents stand in manifests and bring their own rights.
        by_default: it adds them to JobSets of this namespace that say nothing.
    """
    return adds_agents and accounts_of(jobset, by_default=by_default) != ()


def accounts_of(jobset: JobSet, *, by_default: bool) -> tuple[str, ...]:
    """Return the ServiceAccounts of the Pods that want an agent, sorted, each once."""
    members = (job for job in jobset.replicated_jobs if wants_agent(jobset, job, by_default=by_default))
    return tuple(sorted({job.form.service_account for job in members}))


def build_binding(jobset: JobSet, accounts: tuple[str, ...]) -> KubeObject:
    """Return the RoleBinding, which goes with the JobSet.

    Args:
        jobset: its owner.
        accounts: names of ServiceAccounts in the JobSet's namespace.
    """
    subjects = [{"kind": "ServiceAccount", "name": name, "namespace": jobset.namespace} for name in accounts]
    return {
        "apiVersion": ROLE_BINDINGS.api_version,
        "kind": ROLE_BINDINGS.kind,
        "metadata": {
            "name": binding_name(jobset),
            "namespace": jobset.namespace,
            "ownerReferences": [owner_reference(jobset)],
        },
        "roleRef": {"apiGroup": ROLE_BINDINGS.group, "kind": "ClusterRole", "name": ROLE},
        "subjects": subjects,
    }


def binding_name(jobset: JobSet) -> str:
    """Return the binding's name; of a JobSet's name that is too long for any Job, the beginning."""
    suffix = f"-{jobset.uid[:UID_CHARACTERS]}"
    return f"{ROLE}-{jobset.name}"[: NAME_CHARACTERS_MAX - len(suffix)] + suffix


def binding_command(binding: KubeObject) -> str:
    """Return the command with which a person gives what the controller may not give."""
    metadata = binding["metadata"]
    accounts = " ".join(f"--serviceaccount={one['namespace']}:{one['name']}" for one in binding["subjects"])
    return (
        f"kubectl --namespace {metadata['namespace']} create rolebinding {metadata['name']} "
        f"--clusterrole={binding['roleRef']['name']} {accounts}"
    )
