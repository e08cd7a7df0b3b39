"""
The fields that a manifest needs for the agent, as examples/train*.yaml have them.

Everything here is data. Sources: docs/agent.md, agent/start/config.py, agent/start/exit_code.py, docs/adr/0007
(EPOCH_FILE).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from inplace.agent.barrier.address import OUR_PATH, OUR_PORT, WORKER_QUERY
from inplace.agent.link.address import LINK_FILE
from inplace.agent.start.agent_file import IN_IMAGE
from inplace.cli.manifests.text import Inline
from inplace.common.kube.http.credentials import SERVICE_ACCOUNT_DIR
from inplace.common.kube.resources import KubeObject
from inplace.common.protocol.int32 import INT32_MAX
from inplace.common.wire import names as wire

ACCOUNT: Final = "inplace-agent"  # also the name of the Role, whatever the account's is
RESTRICTED: Final = "inplace-agent(-[a-z0-9.-]+)?"  # the accounts that deploy/admission/agents.yaml restricts
VOLUME: Final = "inplace-agent"
COPIER: Final = "inplace-agent-file"
FOLDER: Final = "/var/run/inplace"
EPOCH_FILE: Final = f"{FOLDER}/epoch"
PROGRAM_FILE: Final = f"{FOLDER}/inplace-agent"
TOKEN_VOLUME: Final = "inplace-agent-token"  # noqa: S105 - a volume's name
TOKEN_S: Final = 3600  # a token that somebody reads is good for so long; kubelet renews it, and the agent reads it anew
CONTAINER_RESTART: Final = "CONTAINER_RESTART_EXIT_CODE"  # a supervisor's: kubelet starts its container anew after it
KEEP_CONTAINERS: Final[KubeObject] = {"name": "CLEAN_AFTER_FAILURES", "value": "0"}  # where somebody kills workers
DEPTH: Final[KubeObject] = {"name": "RESTART_DEPTH", "value": wire.DEPTH_PROCESS}
LINK: Final[KubeObject] = {"name": "LINK_FILE", "value": LINK_FILE}
PROBE_HOLD_S: Final = 55  # the agent answers at the lift, or after so long
PROBE_TIMEOUT_S: Final = 60  # BEYOND the former
READY_PERIOD_S: Final = 10  # after the lift; until then the answer is held
# Any Python from 3.10 on; -I -S keep it from looking for packages that the file does not need.
PROGRAM_COMMAND: Final = ("python3", "-I", "-S", PROGRAM_FILE)
# A guarded worker's container starts beside the agent's, which is about to leave the file.
_UNTIL_THERE: Final = """\
import os, sys, time
while not os.path.exists(sys.argv[1]): time.sleep(0.02)  # the agent is about to leave it there
os.execv(sys.executable, [sys.executable, "-IS", *sys.argv[1:]])
"""
GUARD_COMMAND: Final = ("python3", "-I", "-S", "-c", _UNTIL_THERE, PROGRAM_FILE)
DEFAULT_POLICY: Final[Mapping[str, Any]] = {"maxRestarts": 10, "restartStrategy": wire.IN_PLACE_RESTART}
JOB_FIELDS: Final[Mapping[str, Any]] = {"backoffLimit": INT32_MAX, "podReplacementPolicy": "Failed"}

# Variable: the field that the downward API reads.
IDENTITY: Final[Mapping[str, str]] = {
    "NAMESPACE": "metadata.namespace",
    "POD_NAME": "metadata.name",
    "POD_UID": "metadata.uid",
    "JOBSET_NAME": f"metadata.annotations['{wire.JOBSET_NAME}']",
    "JOBSET_UID": f"metadata.annotations['{wire.JOBSET_UID}']",
    "PREVIOUS_EPOCH": f"metadata.annotations['{wire.EPOCH}']",
}
HERD: Final[Mapping[str, str]] = {
    "GROUP_SIZE": f"metadata.annotations['{wire.GROUP_SIZE}']",
    "GROUP_OFFSET": f"metadata.annotations['{wire.GROUP_OFFSET}']",
}
SCOPE: Final[Mapping[str, str]] = {"RESTART_SCOPE": f"metadata.annotations['{wire.RESTART_SCOPE}']"}
ADDRESS: Final[Mapping[str, str]] = {"BARRIER_ADDRESS": "status.podIP"}


def from_field(name: str, path: str) -> KubeObject:
    """Return a variable that the downward API fills in."""
    return {"name": name, "valueFrom": Inline({"fieldRef": {"fieldPath": path}})}


def variables(*, exit_code: int | None, port: int | None) -> list[KubeObject]:
    """Return the agent's variables; without an exit code, a supervisor's."""
    entries = [from_field(name, path) for name, path in IDENTITY.items()]
    entries.append({"name": "EPOCH_FILE", "value": EPOCH_FILE})
    entries += [from_field(name, path) for name, path in ({**HERD, **SCOPE, **ADDRESS}).items()]
    if port is not None:
        entries.append({"name": "BARRIER_PORT", "value": str(port)})
    if exit_code is not None:
        entries.append({"name": "RESTART_POD_IN_PLACE_EXIT_CODE", "value": str(exit_code)})
    return entries


def restarts_all(operator: str, *codes: int) -> KubeObject:
    """Return a rule under which every container of the Pod starts again."""
    return {"action": "RestartAllContainers", "exitCodes": {"operator": operator, "values": list(codes)}}


def restarts_alone(code: int) -> KubeObject:
    """Return a rule under which one container alone starts again: a supervisor, which is the Pod's only worker."""
    return {"action": "Restart", "exitCodes": {"operator": "In", "values": [code]}}


def startup_probe(path: str = OUR_PATH, port: int = OUR_PORT) -> KubeObject:
    """Return the barrier; it never gives up: the group may wait for a node for as long as it takes.

    The answer is held until the barrier lifts (agent/barrier/http.py), so that kubelet learns of it at once.
    """
    get = {"path": path, "port": port, "httpHeaders": [Inline({"name": "Prefer", "value": f"wait={PROBE_HOLD_S}"})]}
    return {
        "httpGet": get,
        "periodSeconds": 1,
        "timeoutSeconds": PROBE_TIMEOUT_S,
        "failureThreshold": INT32_MAX,
    }


def readiness_probe(port: int = OUR_PORT) -> KubeObject:
    """Return the probe that makes a guarded Pod ready when its worker runs; nothing waits for it inside the Pod."""
    get = startup_probe(f"{OUR_PATH}?{WORKER_QUERY}", port)["httpGet"]
    return {"httpGet": get, "periodSeconds": READY_PERIOD_S, "timeoutSeconds": PROBE_TIMEOUT_S}


def mount() -> KubeObject:
    """Return the mount of the folder that outlives the containers and goes with the Pod."""
    return {"name": VOLUME, "mountPath": FOLDER}


def token_mount() -> KubeObject:
    """Return the mount of the agent's own token, where kubelet's would be."""
    return {"name": TOKEN_VOLUME, "mountPath": SERVICE_ACCOUNT_DIR, "readOnly": True}


def token_volume() -> KubeObject:
    """Return the volume of the agent's own token; as kubelet's, but of one container.

    Source: k8s.io/kubernetes/plugin/pkg/admission/serviceaccount, TokenVolumeSource.
    """
    sources = [
        Inline({"serviceAccountToken": {"path": "token", "expirationSeconds": TOKEN_S}}),
        Inline({"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}}),
        Inline({"downwardAPI": {"items": [{"path": "namespace", "fieldRef": {"fieldPath": "metadata.namespace"}}]}}),
    ]
    return {"name": TOKEN_VOLUME, "projected": {"sources": sources}}


def holds_token(volume: Mapping[str, Any]) -> bool:
    """Say whether a volume projects a token of the Pod's account for the API server itself."""
    sources = (volume.get("projected") or {}).get("sources") or ()
    tokens = (source.get("serviceAccountToken") for source in sources if isinstance(source, Mapping))
    return any(isinstance(token, Mapping) and not token.get("audience") for token in tokens)


def sidecar(
    image: str, *, exit_code: int, port: int, as_root: bool, resources: KubeObject, guarded: bool = False
) -> KubeObject:
    """Return the agent's container; `as_root` is what the Pod asks for all of its containers."""
    probe = {"readinessProbe": readiness_probe(port)} if guarded else {"startupProbe": startup_probe(port=port)}
    own = variables(exit_code=exit_code, port=port if port != OUR_PORT else None)
    fields = {
        "restartPolicy": "Always",
        "restartPolicyRules": [restarts_all("NotIn", 0), restarts_all("In", 0)],
        **probe,
        "env": [*own, dict(LINK)] if guarded else own,
    }
    return _container("inplace-agent", image, ["inplace-agent"], fields, as_root=as_root, resources=resources)


def copier(image: str, *, as_root: bool, resources: KubeObject) -> KubeObject:
    """Return the init container that brings the one-file agent into the worker's container."""
    copy = f"import shutil; shutil.copy({IN_IMAGE!r}, {PROGRAM_FILE!r})"
    return _container(COPIER, image, ["python3", "-I", "-S", "-c", copy], {}, as_root=as_root, resources=resources)


def is_restricted(account: object) -> bool:
    """Say whether admission lets this account announce for its own Pod alone."""
    return isinstance(account, str) and re.fullmatch(RESTRICTED, account) is not None


def binds(obj: KubeObject, namespace: str, account: str) -> bool:
    """Say whether an object binds an account to some role."""
    subject = {"kind": "ServiceAccount", "name": account, "namespace": namespace}
    is_binding = obj.get("kind") in ("RoleBinding", "ClusterRoleBinding")
    return is_binding and any(subject.items() <= dict(one).items() for one in obj.get("subjects") or ())


def permissions(namespace: str, account: str) -> list[KubeObject]:
    """Return the account of a namespace's agents and what it may do, as deploy/agent has it.

    An account of another name is the user's: it must exist, and neither Role nor binding can have the name of one of
    the user's. A colon is in no account's name.
    """
    group = "rbac.authorization.k8s.io"
    ours = is_restricted(account)
    accounts = [{"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": account, "namespace": namespace}}]
    return [
        *(accounts if ours else ()),
        {
            "apiVersion": f"{group}/v1",
            "kind": "Role",
            "metadata": {"name": ACCOUNT, "namespace": namespace},
            "rules": [
                {"apiGroups": [wire.API_GROUP], "resources": ["jobsets"], "verbs": ["get", "list", "watch"]},
                {"apiGroups": [""], "resources": ["pods"], "verbs": ["patch"]},
            ],
        },
        {
            "apiVersion": f"{group}/v1",
            "kind": "RoleBinding",
            "metadata": {"name": account if ours else f"{ACCOUNT}:{account}", "namespace": namespace},
            "roleRef": {"apiGroup": group, "kind": "Role", "name": ACCOUNT},
            "subjects": [{"kind": "ServiceAccount", "name": account, "namespace": namespace}],
        },
    ]


def _container(
    name: str, image: str, command: list[str], fields: KubeObject, *, as_root: bool, resources: KubeObject
) -> KubeObject:
    """Return a container under the Pod Security level `restricted`; the agent needs nothing more."""
    context = {
        "allowPrivilegeEscalation": False,
        "capabilities": Inline({"drop": ["ALL"]}),
        "readOnlyRootFilesystem": True,
        "runAsNonRoot": True,
        "seccompProfile": Inline({"type": "RuntimeDefault"}),
    }
    return {
        "name": name,
        "image": image,
        "imagePullPolicy": "IfNotPresent",
        "command": command,
        **fields,
        "volumeMounts": [mount()],
        **({"resources": resources} if resources else {}),
        "securityContext": context | ({"runAsUser": 65532} if as_root else {}),
    }
