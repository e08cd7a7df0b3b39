"""The roles of deploy/ agree with the rights that the code names."""

from __future__ import annotations

from pathlib import Path

import yaml

from inplace.common.kube.resources import KubeObject
from inplace.controller.preflight import LEASE_VERBS, NEEDED, POLICIES

RBAC = Path(__file__).parents[2] / "deploy" / "rbac"


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
    """The preflight checks exactly the rights of the ClusterRole."""
    assert granted(role("ClusterRole", "inplace-controller")) == {what: set(verbs) for what, verbs in NEEDED.items()}


def test_the_lease_is_checked_too() -> None:
    """The preflight checks exactly the rights of the Role of leader election."""
    rules = role("Role", "inplace-controller")["rules"]
    assert {verb for rule in rules for verb in rule["verbs"]} == set(LEASE_VERBS)


def test_the_preflight_may_read_what_it_looks_for() -> None:
    """The preflight may read exactly the CRD and the bindings that it checks."""
    named = {
        name
        for rule in role("ClusterRole", "inplace-controller")["rules"]
        for name in rule.get("resourceNames", [])
        if rule["verbs"] == ["get"]
    }
    assert named == {"jobsets.jobset.x-k8s.io", *POLICIES}


WRITES = {"create", "update", "patch", "delete", "deletecollection", "*"}


def test_nobody_but_the_controller_writes_a_status() -> None:
    """The roles `view`, `edit` and `admin` may only read jobsets/status."""
    documents = yaml.safe_load_all((RBAC / "users.yaml").read_text())
    verbs = [granted(document)["jobset.x-k8s.io/jobsets/status"] for document in documents]
    assert verbs
    assert not set().union(*verbs) & WRITES


def test_the_controllers_token_reads_no_secret_and_changes_no_right() -> None:
    """The controller has no right to Secrets, ConfigMaps, roles, Pod creation, exec or tokens, and no wildcard."""
    rules = role("ClusterRole", "inplace-controller")["rules"] + role("Role", "inplace-controller")["rules"]
    for rule in rules:
        assert "*" not in {*rule["apiGroups"], *rule["resources"], *rule["verbs"]}
        assert "rbac.authorization.k8s.io" not in rule["apiGroups"]
        assert not {"secrets", "configmaps", "serviceaccounts", "serviceaccounts/token"} & set(rule["resources"])
        assert not {"pods/exec", "pods/attach", "pods/portforward", "pods/ephemeralcontainers"} & set(rule["resources"])
        assert not ("pods" in rule["resources"] and {"create", "delete"} & set(rule["verbs"]))
        assert not {"impersonate", "escalate", "bind"} & set(rule["verbs"])
