"""The roles of deploy/ agree with the rights that the code names."""

from __future__ import annotations

from pathlib import Path

import yaml

from inplace.common.injection.rights import ROLE
from inplace.common.kube.resources import EVICTION_REQUESTS, EVICTIONS, POD_GROUPS, SCHEDULING_WORKLOADS, KubeObject
from inplace.controller.preflight import FOR_AGENTS, FOR_LEASE, FOR_OPT_IN, FOR_REFUSALS, NEEDED, POLICIES

RBAC = Path(__file__).parents[2] / "deploy" / "rbac"

FOR_GANGS = {
    f"{resource.group}/{resource.plural}": ("get", "list", "watch", "create", "patch", "delete")
    for resource in (SCHEDULING_WORKLOADS, POD_GROUPS)
}
"""For JobSets with spec.scheduling alone: the preflight does not ask for it, and an Event of theirs says it lacks."""


FOR_EVICTIONS: dict[str, tuple[str, ...]] = {
    f"{EVICTIONS.group}/{EVICTION_REQUESTS.plural}": ("list", "watch"),
    f"{EVICTIONS.group}/{EVICTIONS.plural}": ("list", "watch"),
    f"{EVICTIONS.group}/{EVICTIONS.plural}/status": ("patch",),
}
"""For groups with spares alone, where the API is served; without it members wait for the end of their Pods."""


def role(kind: str, name: str, file: str = "controller.yaml") -> KubeObject:
    """Return a role by kind and name."""
    documents = yaml.safe_load_all((RBAC / file).read_text())
    return next(found for found in documents if (found["kind"], found["metadata"]["name"]) == (kind, name))


def granted(found: KubeObject) -> dict[str, set[str]]:
    """Return verbs by group/resource, of the rules that name no objects."""
    verbs: dict[str, set[str]] = {}
    for rule in found["rules"]:
        if "resourceNames" not in rule:
            for resource in rule["resources"]:
                verbs.setdefault(f"{rule['apiGroups'][0]}/{resource}", set()).update(rule["verbs"])
    return verbs


def test_the_controller_asks_for_what_it_is_given() -> None:
    """The preflight checks exactly the rights of the ClusterRole, but for those that gangs and evictions need."""
    more = FOR_AGENTS | FOR_GANGS | FOR_EVICTIONS | FOR_OPT_IN | FOR_REFUSALS
    needed = {what: set(verbs) for what, verbs in (NEEDED | more).items()}
    assert granted(role("ClusterRole", "inplace-controller")) == needed


def test_the_lease_is_checked_too() -> None:
    """The preflight checks exactly the rights of the Role of leader election."""
    rules = role("Role", "inplace-controller")["rules"]
    assert {verb for rule in rules for verb in rule["verbs"]} == set(*FOR_LEASE.values())


def test_the_preflight_may_read_what_it_looks_for() -> None:
    """The preflight may read exactly the CRD and the bindings that it checks."""
    named = {
        name
        for rule in role("ClusterRole", "inplace-controller")["rules"]
        for name in rule.get("resourceNames", [])
        if rule["verbs"] == ["get"]
    }
    assert named == {"jobsets.jobset.x-k8s.io", *POLICIES}


BINDS = {
    "apiGroups": ["rbac.authorization.k8s.io"],
    "resources": ["clusterroles"],
    "resourceNames": [ROLE],
    "verbs": ["bind"],
}
GIVES_RIGHTS = {"apiGroups": ["rbac.authorization.k8s.io"], "resources": ["roles", "rolebindings"], "verbs": ["create"]}
WRITES = {"create", "update", "patch", "delete", "deletecollection", "*"}


def test_nobody_but_the_controller_writes_a_status() -> None:
    """The roles `view`, `edit` and `admin` may only read jobsets/status."""
    documents = yaml.safe_load_all((RBAC / "users.yaml").read_text())
    verbs = [granted(document)["jobset.x-k8s.io/jobsets/status"] for document in documents]
    assert verbs
    assert not set().union(*verbs) & WRITES


def test_the_controllers_token_reads_no_secret_and_changes_no_right() -> None:
    """No right to Secrets, ConfigMaps, Pod creation, exec or tokens, no wildcard; of roles it may bind the agents'."""
    rules = role("ClusterRole", "inplace-controller")["rules"] + role("Role", "inplace-controller")["rules"]
    for rule in rules:
        assert "*" not in {*rule["apiGroups"], *rule["resources"], *rule["verbs"]}
        if "rbac.authorization.k8s.io" in rule["apiGroups"]:
            assert rule in (BINDS, GIVES_RIGHTS)
            continue
        assert not {"secrets", "configmaps", "serviceaccounts", "serviceaccounts/token"} & set(rule["resources"])
        assert not {"pods/exec", "pods/attach", "pods/portforward", "pods/ephemeralcontainers"} & set(rule["resources"])
        assert not ("pods" in rule["resources"] and {"create", "delete"} & set(rule["verbs"]))
        assert not {"impersonate", "escalate", "bind"} & set(rule["verbs"])


def test_the_agents_cluster_role_reads_no_jobset() -> None:
    """It patches Pods, as admission narrows it, and has the right by which admission knows an agent; no more."""
    shipped = role("ClusterRole", ROLE, "agents.yaml")
    assert shipped["rules"] == [
        {"apiGroups": [""], "resources": ["pods"], "verbs": ["patch"]},
        {"apiGroups": ["inplace.dev"], "resources": ["epochs"], "verbs": ["announce"]},
    ]
    assert "aggregationRule" not in shipped
    assert "labels" not in shipped["metadata"]


def test_a_namespaces_admin_may_bind_that_role_and_not_announce() -> None:
    """The built-in role admin gets `bind` of the agents' ClusterRole, and not its rights."""
    binder = role("ClusterRole", "inplace-agent-binder", "agents.yaml")
    assert binder["metadata"]["labels"] == {"rbac.authorization.k8s.io/aggregate-to-admin": "true"}
    assert binder["rules"] == [BINDS]


def test_the_controller_may_not_announce() -> None:
    """Whoever may announce and may only patch Pods is restricted as an agent; the controller patches Pods of others."""
    groups = {group for rule in role("ClusterRole", "inplace-controller")["rules"] for group in rule["apiGroups"]}
    assert "inplace.dev" not in groups
