"""
The fields that a Pod template needs for the agent, as examples/train*.yaml have them.

Everything here is data. Sources: docs/agent.md, agent/settings/config.py, docs/adr/0007 (EPOCH_FILE), docs/adr/0085
(the agent's image as a volume).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from inplace.common.agent_command import GUARD_PROGRAM
from inplace.common.injection.pod_roles import SERVICE_ACCOUNT_DIR
from inplace.common.kube.resources import KubeObject
from inplace.common.protocol.bounds import INT32_MAX
from inplace.common.wire import names as wire
from inplace.common.wire.barrier import OUR_PATH, OUR_PORT, WORKER_QUERY

CONTAINER: Final = "inplace-agent"
VOLUME: Final = "inplace-agent"  # the agent's folder, which guards see read-only: its memory, and the link
FOLDER: Final = "/var/run/inplace"
PROGRESS_VOLUME: Final = "inplace-progress"  # what a worker writes for its agent, and for its next guard
PROGRESS_FOLDER: Final = f"{FOLDER}/progress"
KEEP_VOLUME: Final = "inplace-keep"  # what a worker keeps in memory for its next run
KEEP_FOLDER: Final = "/var/run/inplace-keep"  # beside FOLDER, which guards cannot write
KEEP_DIR: Final[KubeObject] = {"name": "INPLACE_KEEP_DIR", "value": KEEP_FOLDER}
# Both are in memory: one that is full refuses what comes, where a disk's would cost the Pod its place (eviction).
FOLDER_SIZE: Final = "16Mi"  # hundreds of ranks, four pages each, and a guard's list of /dev/shm
COPY_SIZE: Final = "256Mi"  # five times the programs
EPOCH_FILE: Final = f"{FOLDER}/epoch"
LINK_FILE: Final = f"{FOLDER}/link"  # agent/settings/address.py has it as a guard's default
IMAGE: Final = "inplace-agent"  # the agent's image, unless an option names another
IMAGE_VOLUME: Final = "inplace"  # the agent's image, or a copy of it, in a container that runs a program of it
PREFIX: Final = "/inplace"  # where that is mounted, and where the image has itself
RUN_COMMAND: Final = (f"{PREFIX}/bin/inplace-agent", "run")
GUARD_COMMAND: Final = (GUARD_PROGRAM,)
COPY_PROGRAM: Final = f"{PREFIX}/bin/copy"
COPIER: Final = "inplace-copy"  # an init container, where nodes have no image volumes
_COPIED: Final = "/inplace-copy"  # where the copier has the volume; at PREFIX is its own image
TOKEN_VOLUME: Final = "inplace-agent-token"  # noqa: S105 - a volume's name
TOKEN_S: Final = 3600  # a token that somebody reads is good for so long; kubelet renews it, and the agent reads it anew
CONTAINER_RESTART: Final = "CONTAINER_RESTART_EXIT_CODE"  # a supervisor's: kubelet starts its container anew after it
# glibc's loader reads it in a program whose container has no command (images/entrypoint.c, docs/adr/0093).
LOADER: Final[KubeObject] = {"name": "LD_AUDIT", "value": f"{PREFIX}/lib/entrypoint.so"}
GUARDS_AWAITED: Final = "GUARDS_AWAITED"
LINK: Final[KubeObject] = {"name": "LINK_FILE", "value": LINK_FILE}
PROBE_HOLD_S: Final = 55  # the agent answers at the lift, or after so long
PROBE_TIMEOUT_S: Final = 60  # BEYOND the former
READY_PERIOD_S: Final = 10  # after the lift; until then the answer is held
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
SETTINGS: Final[Mapping[str, str]] = {
    name: f"metadata.annotations['{annotation}']" for name, annotation in wire.SETTINGS.items()
}
SAVE_WITHIN: Final = "SAVE_WITHIN_S"  # which a guard reads as well
DEPTH: Final = "RESTART_DEPTH"  # which a supervisor does not read
NEVER_CLEAN: Final[KubeObject] = {"name": "CLEAN_AFTER_FAILURES", "value": "0"}
ADDRESS: Final[Mapping[str, str]] = {"BARRIER_ADDRESS": "status.podIP"}


def from_field(name: str, path: str) -> KubeObject:
    """Return a variable that the downward API fills in."""
    return {"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}}


def variables(*, port: int, supervises: bool = False, is_cleaned: bool = True) -> list[KubeObject]:
    """Return the agent's variables; the usual port needs none. No Pod gets clean containers without rules for that."""
    entries = [from_field(name, path) for name, path in IDENTITY.items()]
    entries.append({"name": "EPOCH_FILE", "value": EPOCH_FILE})
    settings = {name: path for name, path in SETTINGS.items() if not (supervises and name == DEPTH)}
    entries += [from_field(name, path) for name, path in {**HERD, **settings, **ADDRESS}.items()]
    if not is_cleaned:
        entries = [dict(NEVER_CLEAN) if entry["name"] == NEVER_CLEAN["name"] else entry for entry in entries]
    if port != OUR_PORT:
        entries.append({"name": "BARRIER_PORT", "value": str(port)})
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
    get = {"path": path, "port": port, "httpHeaders": [{"name": "Prefer", "value": f"wait={PROBE_HOLD_S}"}]}
    return {"httpGet": get, "periodSeconds": 1, "timeoutSeconds": PROBE_TIMEOUT_S, "failureThreshold": INT32_MAX}


def readiness_probe(port: int = OUR_PORT) -> KubeObject:
    """Return the probe that makes a guarded Pod ready when its worker runs; nothing waits for it inside the Pod."""
    get = startup_probe(f"{OUR_PATH}?{WORKER_QUERY}", port)["httpGet"]
    return {"httpGet": get, "periodSeconds": READY_PERIOD_S, "timeoutSeconds": PROBE_TIMEOUT_S}


def mount() -> KubeObject:
    """Return the agent's mount of the folder that outlives the containers and goes with the Pod."""
    return {"name": VOLUME, "mountPath": FOLDER}


def worker_mount() -> KubeObject:
    """Return the same for a guard's container: there nobody writes the agent's memory, or puts another link there."""
    return {**mount(), "readOnly": True}


def progress_mount() -> KubeObject:
    """Return the mount of the folder in which agent, guard and worker write."""
    return {"name": PROGRESS_VOLUME, "mountPath": PROGRESS_FOLDER}


def keep_mount() -> KubeObject:
    """Return a worker's mount of what it keeps in memory."""
    return {"name": KEEP_VOLUME, "mountPath": KEEP_FOLDER}


def memory_volume(name: str, size: str = FOLDER_SIZE) -> KubeObject:
    """Return a volume in memory."""
    return {"name": name, "emptyDir": {"medium": "Memory", "sizeLimit": size}}


def image_mount() -> KubeObject:
    """Return the mount of the agent's programs in a container of the user's."""
    return {"name": IMAGE_VOLUME, "mountPath": PREFIX, "readOnly": True}


def image_volume(image: str, *, copied: bool) -> KubeObject:
    """Return the volume of the agent's programs: its image, or the folder into which a copier puts them."""
    on_disk: KubeObject = {"emptyDir": {"sizeLimit": COPY_SIZE}}
    source = on_disk if copied else {"image": {"reference": image, "pullPolicy": "IfNotPresent"}}
    return {"name": IMAGE_VOLUME, **source}


def token_mount() -> KubeObject:
    """Return the mount of the agent's own token, where kubelet's would be."""
    return {"name": TOKEN_VOLUME, "mountPath": SERVICE_ACCOUNT_DIR, "readOnly": True}


def token_volume() -> KubeObject:
    """Return the volume of the agent's own token; as kubelet's, but of one container.

    Source: k8s.io/kubernetes/plugin/pkg/admission/serviceaccount, TokenVolumeSource.
    """
    sources = [
        {"serviceAccountToken": {"path": "token", "expirationSeconds": TOKEN_S}},
        {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
        {"downwardAPI": {"items": [{"path": "namespace", "fieldRef": {"fieldPath": "metadata.namespace"}}]}},
    ]
    return {"name": TOKEN_VOLUME, "projected": {"sources": sources}}


def holds_token(volume: Mapping[str, Any]) -> bool:
    """Say whether a volume projects a token of the Pod's account for the API server itself."""
    sources = (volume.get("projected") or {}).get("sources") or ()
    tokens = (source.get("serviceAccountToken") for source in sources if isinstance(source, Mapping))
    return any(isinstance(token, Mapping) and not token.get("audience") for token in tokens)


def copier(image: str, *, as_root: bool, resources: KubeObject) -> KubeObject:
    """Return the init container that copies the agent's image to a volume; a copy of the same build stays."""
    fields = {"volumeMounts": [{"name": IMAGE_VOLUME, "mountPath": _COPIED}]}
    command = [COPY_PROGRAM, _COPIED]
    return container(COPIER, image, command, fields, as_root=as_root, resources=resources)


def container(
    name: str, image: str, command: list[str], fields: KubeObject, *, as_root: bool, resources: KubeObject
) -> KubeObject:
    """Return a container under the Pod Security level `restricted`; the agent needs nothing more."""
    context = {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        "readOnlyRootFilesystem": True,
        "runAsNonRoot": True,
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    return {
        "name": name,
        "image": image,
        "imagePullPolicy": "IfNotPresent",
        "command": command,
        **fields,
        **({"resources": resources} if resources else {}),
        "securityContext": context | ({"runAsUser": 65532} if as_root else {}),
    }
