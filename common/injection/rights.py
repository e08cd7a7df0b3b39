"""
The rights of an agent's account: it reads the JobSet of its Pods, by name, and announces. Pure.

`inplace inject` prints these objects, and the controller creates them (controller/act/agent_rights.py). What an account
may then do to a Pod is decided by deploy/admission/agents.yaml (docs/adr/0087).
"""

from __future__ import annotations

import re
from typing import Final

from inplace.common.injection.agent_pieces import VOLUME
from inplace.common.kube.resources import ROLE_BINDINGS, ROLES, SERVICE_ACCOUNTS, KubeObject
from inplace.common.wire import names as wire

ROLE: Final = "inplace-agent"  # the ClusterRole of deploy/rbac/agents.yaml, and how the names of our objects begin
ACCOUNT: Final = "inplace-agent"  # of Pods that name none, where `inject` writes the agent
RESTRICTED: Final = "inplace-agent(-[a-z0-9.-]+)?"  # accounts that deploy/admission/agents.yaml knows by their names
READ: Final = ("get", "list", "watch")  # an agent lists and watches its JobSet by name; get is for upstream's agent
UID_CHARACTERS: Final = 8  # the first ones, which are random: two lives of one name meet once in 4 billion times


def permissions(
    namespace: str, account: str, jobset: str | None, *, owner: KubeObject | None = None, announces: bool = True
) -> list[KubeObject]:
    """Return what lets an account read one JobSet and announce on its own Pod.

    The Role grants get, list and watch of one name. The server takes a list or watch with a field selector
    `metadata.name=NAME` for a request of that name. Source: k8s.io/apiserver/pkg/endpoints/request, NewRequestInfo.

    Args:
        namespace: of all objects.
        account: of the Pods.
        jobset: its name; None where it is not known yet (a Trainer's runtime): then all JobSets of the namespace.
        owner: the ownerReference of the JobSet with which the objects go. A part of its UID is then in their names: the
            objects of an earlier JobSet of the same name, which are being removed, are not taken for this one's.
        announces: False for an account that may patch Pods by a right of its own: admission would restrict it.
    """
    name = ":".join([ROLE, *([jobset] if jobset else []), account, *([owner["uid"][:UID_CHARACTERS]] if owner else [])])
    names: KubeObject = {"resourceNames": [jobset]} if jobset else {}
    rule = {"apiGroups": [wire.API_GROUP], "resources": ["jobsets"], "verbs": [*READ], **names}
    owners: KubeObject = {"ownerReferences": [owner]} if owner else {}
    role: KubeObject = {
        "apiVersion": ROLES.api_version,
        "kind": ROLES.kind,
        "metadata": {"name": name, "namespace": namespace, **owners},
        "rules": [rule],
    }
    made = [role, _binding(role["metadata"], ROLES.kind, name, account)]
    if announces:
        made.append(_binding(role["metadata"] | {"name": f"{name}:announce"}, "ClusterRole", ROLE, account))
    return made


def _binding(metadata: KubeObject, kind: str, role: str, account: str) -> KubeObject:
    return {
        "apiVersion": ROLE_BINDINGS.api_version,
        "kind": ROLE_BINDINGS.kind,
        "metadata": metadata,
        "roleRef": {"apiGroup": ROLE_BINDINGS.group, "kind": kind, "name": role},
        "subjects": [{"kind": "ServiceAccount", "name": account, "namespace": metadata["namespace"]}],
    }


def service_account(namespace: str, account: str) -> KubeObject:
    """Return an account for agents alone."""
    metadata = {"name": account, "namespace": namespace}
    return {"apiVersion": SERVICE_ACCOUNTS.api_version, "kind": SERVICE_ACCOUNTS.kind, "metadata": metadata}


def commands(namespace: str, account: str, jobset: str) -> str:
    """Return the commands with which a person gives these rights."""
    name = f"{ROLE}:{jobset}:{account}"
    who = f"--serviceaccount={namespace}:{account}"
    kubectl = f"kubectl --namespace {namespace} create"
    verbs = f"--verb={','.join(READ)} --resource=jobsets.{wire.API_GROUP} --resource-name={jobset}"
    return (
        f"{kubectl} role {name} {verbs} && {kubectl} rolebinding {name} --role={name} {who} && "
        f"{kubectl} rolebinding {name}:announce --clusterrole={ROLE} {who}"
    )


def shared_token(job: KubeObject) -> str:
    """Say what it means that every container of a Pod with an agent has a token; "" where only the agent's has one.

    All Jobs of a JobSet with one account get the same words, which make one Event.

    Args:
        job: as it is made.
    """
    pod = job["spec"]["template"]["spec"]
    has_agent = any(volume.get("name") == VOLUME for volume in pod.get("volumes") or ())
    if not has_agent or pod.get("automountServiceAccountToken") is not True:
        return ""
    account = pod.get("serviceAccountName") or "default"
    return (
        "the Pod template says automountServiceAccountToken: true: every container has a token of ServiceAccount "
        f"{account}, with which training code can announce for its own Pod and read this JobSet; remove the field, "
        "unless a script talks to the API server"
    )


def is_restricted(account: object) -> bool:
    """Say whether admission lets this account announce for its own Pod alone, whatever its rights."""
    return isinstance(account, str) and re.fullmatch(RESTRICTED, account) is not None


def binds(obj: KubeObject, namespace: str, account: str) -> bool:
    """Say whether an object binds an account to some role."""
    subject = {"kind": "ServiceAccount", "name": account, "namespace": namespace}
    is_binding = obj.get("kind") in ("RoleBinding", "ClusterRoleBinding")
    return is_binding and any(subject.items() <= dict(one).items() for one in obj.get("subjects") or ())
