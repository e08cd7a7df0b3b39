"""The binding that gives agents their right: for whom, under which name, and in which passes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from inplace.common.kube.resources import KubeObject
from inplace.common.wire import names as wire
from inplace.controller.plan.actions import Action, BindAgents, CreateJob
from inplace.controller.plan.binding import (
    NAME_CHARACTERS_MAX,
    accounts_of,
    binding_command,
    binding_name,
    build_binding,
    needs_binding,
)
from inplace.controller.plan.steps import plan
from inplace.controller.spec.jobset import JobSet
from tests.controller.manifests import changed, jobset, replicated_job
from tests.controller.objects import parsed
from tests.controller.plan.planner_world import PlannerWorld, settled

UID = "5f0f2ac8-0b5e-4c6e-9f5e-5f6f6c1a7d10"


def jobset_with(*pod_specs: dict[str, Any], name: str = "train", **spec: Any) -> JobSet:
    """Return a JobSet with a replicatedJob for each addition to a Pod's spec."""
    jobs = [replicated_job(f"w{number}") for number, _ in enumerate(pod_specs)]
    for job, added in zip(jobs, pod_specs, strict=True):
        job["template"]["spec"]["template"]["spec"] |= added
    return parsed(jobset(name, jobs=jobs, **spec), uid=UID)


def bindings(actions: tuple[Action, ...]) -> list[KubeObject]:
    """Return the bindings that a plan creates."""
    return [action.manifest for action in actions if isinstance(action, BindAgents)]


@pytest.mark.parametrize(
    ("pod_spec", "account"),
    [
        ({}, "default"),
        ({"serviceAccountName": None}, "default"),
        ({"serviceAccountName": ""}, "default"),
        ({"serviceAccountName": "trainer"}, "trainer"),
        ({"serviceAccount": "old"}, "old"),
        ({"serviceAccountName": "trainer", "serviceAccount": "old"}, "trainer"),
        ({"serviceAccountName": "", "serviceAccount": "old"}, "old"),
    ],
)
def test_the_account_of_pods(pod_spec: dict[str, Any], account: str) -> None:
    """It is serviceAccountName, else the older field, else default: the account that the API gives the Pod."""
    assert accounts_of(jobset_with(pod_spec), by_default=True) == (account,)


def test_accounts_of_all_pods_that_have_an_agent() -> None:
    """Each account once, sorted; a replicatedJob that opted out has no agent."""
    members = jobset_with({"serviceAccountName": "b"}, {"serviceAccountName": "a"}, {"serviceAccountName": "b"}, {})
    assert accounts_of(members, by_default=True) == ("a", "b", "default")
    out = changed(replicated_job("out"), "template.metadata.annotations", {wire.DISABLE: ""})
    out["template"]["spec"]["template"]["spec"]["serviceAccountName"] = "other"
    assert accounts_of(parsed(jobset(jobs=[replicated_job(), out])), by_default=True) == ("default",)


def test_the_binding() -> None:
    """It binds the agents' ClusterRole to the accounts, in the JobSet's namespace, and goes with the JobSet."""
    assert build_binding(jobset_with({}, namespace="team"), ("a", "b")) == {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "RoleBinding",
        "metadata": {
            "name": "inplace-agent-train-5f0f2ac8",
            "namespace": "team",
            "ownerReferences": [
                {
                    "apiVersion": wire.API_VERSION,
                    "kind": "JobSet",
                    "name": "train",
                    "uid": UID,
                    "controller": True,
                    "blockOwnerDeletion": True,
                }
            ],
        },
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "inplace-agent"},
        "subjects": [
            {"kind": "ServiceAccount", "name": "a", "namespace": "team"},
            {"kind": "ServiceAccount", "name": "b", "namespace": "team"},
        ],
    }


def test_a_jobset_made_anew_has_a_binding_of_another_name() -> None:
    """The binding of an earlier JobSet of the same name is garbage: it is not taken for the new one's."""
    first = jobset_with({})
    assert binding_name(first) != binding_name(replace(first, uid="6" + UID[1:]))


@pytest.mark.parametrize("characters", [1, 63, 229, 230, 231, 253])
def test_the_name_fits(characters: int) -> None:
    """However long the JobSet's name is, the binding's is one that the API takes, and ends with the UID's part."""
    name = binding_name(jobset_with({}, name="n" * characters))
    assert len(name) == min(len("inplace-agent-") + characters + len("-5f0f2ac8"), NAME_CHARACTERS_MAX)
    assert name.endswith("n-5f0f2ac8")


def test_the_command_for_a_person() -> None:
    """With it kubectl makes the same binding, but for the owner."""
    command = binding_command(build_binding(jobset_with({}, namespace="team"), ("a", "b")))
    assert command == (
        "kubectl --namespace team create rolebinding inplace-agent-train-5f0f2ac8 --clusterrole=inplace-agent "
        "--serviceaccount=team:a --serviceaccount=team:b"
    )


def test_who_needs_a_binding() -> None:
    """Groups that restart in place, under a controller that adds agents; a manifest's own agents bring their rights."""
    out = changed(replicated_job(), "template.metadata.annotations", {wire.DISABLE: ""})
    assert needs_binding(jobset_with({}), adds_agents=True, by_default=True)
    assert not needs_binding(jobset_with({}), adds_agents=False, by_default=True)
    assert not needs_binding(jobset_with({}, strategy="Recreate"), adds_agents=True, by_default=True)
    assert not needs_binding(
        jobset_with({}, annotations={wire.AGENT: wire.AGENT_OFF}), adds_agents=True, by_default=True
    )
    assert not needs_binding(parsed(jobset(jobs=[out])), adds_agents=True, by_default=True)


def test_who_needs_a_binding_where_jobsets_ask_for_agents() -> None:
    """With --agent-opt-in only a JobSet that asks for agents needs it."""
    assert not needs_binding(jobset_with({}), adds_agents=True, by_default=False)
    asking = jobset_with({}, annotations={wire.AGENT: wire.AGENT_ON})
    assert needs_binding(asking, adds_agents=True, by_default=False)
    assert not needs_binding(asking, adds_agents=False, by_default=False)


def test_a_binding_comes_with_jobs_and_not_without() -> None:
    """A pass that creates Jobs creates one binding; a pass that creates none creates none."""
    world = PlannerWorld(jobset(jobs=[replicated_job(replicas=3)]))
    planned = plan(replace(world.observed(), adds_agents=True)).actions
    (binding,) = bindings(planned)
    assert binding["metadata"]["name"] == "inplace-agent-train-js-uid"
    assert sum(isinstance(action, CreateJob) for action in planned) == 3
    assert bindings(world.plan().actions) == []
    world.settle()
    assert plan(replace(world.observed(), adds_agents=True)).actions == ()


def test_a_job_that_comes_back_brings_the_binding_along() -> None:
    """A deleted Job is created with a binding again: somebody may have deleted that as well."""
    world = settled(jobset(jobs=[replicated_job(replicas=2)]))
    del world.jobs["train-workers-1"]
    assert len(bindings(plan(replace(world.observed(), adds_agents=True)).actions)) == 1
