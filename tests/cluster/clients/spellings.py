"""Pod templates in which a typed client finds a default of Kubernetes' API left out, one for each default and place."""

from __future__ import annotations

from collections.abc import Iterator
from copy import deepcopy
from typing import Any, Final

from tests.cluster.clients.manifests import PORT, Object, jobset

PROBES: Final = ("livenessProbe", "readinessProbe", "startupProbe")
GRPC: Final = {"grpc": {"port": 8081}}
FILE_KEY: Final = {
    "name": "FROM_FILE",
    "valueFrom": {"fileKeyRef": {"volumeName": "scratch", "path": "env", "key": "A"}},
}
SCRATCH: Final = {"name": "scratch", "emptyDir": {}}
SECRET: Final[Object] = {"secretRef": {}}

OF_CONTAINERS: Final[dict[str, Object]] = {
    "port": {"ports": [PORT]},
    "ports": {"ports": [PORT, {"containerPort": 29501, "protocol": "UDP"}]},
    "fileKeyRef": {"env": [FILE_KEY]},
    "configMapKeyRef": {"env": [{"name": "A", "valueFrom": {"configMapKeyRef": {"key": "a"}}}]},
    "secretKeyRef": {"env": [{"name": "A", "valueFrom": {"secretKeyRef": {"key": "a"}}}]},
    "configMapRef": {"envFrom": [{"configMapRef": {}}]},
    "envFrom.secretRef": {"envFrom": [{"secretRef": {}}]},
    **{f"{probe}.grpc": {probe: GRPC} for probe in PROBES},
}
"""What a container leaves out; each is tried in a container and in a sidecar (an init container that has probes)."""

VOLUMES: Final[dict[str, Object]] = {
    "configMap": {"configMap": {}},
    "projected.configMap": {"projected": {"sources": [{"configMap": {}}]}},
    "projected.secret": {"projected": {"sources": [{"secret": {}}]}},
    "cephfs": {"cephfs": {"monitors": ["a"], **SECRET}},
    "cinder": {"cinder": {"volumeID": "a", **SECRET}},
    "flexVolume": {"flexVolume": {"driver": "a/b", **SECRET}},
    "iscsi": {"iscsi": {"targetPortal": "a", "iqn": "iqn.2026-01.test:a", "lun": 0, **SECRET}},
    "rbd": {"rbd": {"monitors": ["a"], "image": "a", **SECRET}},
    "scaleIO": {"scaleIO": {"gateway": "a", "system": "a", "volumeName": "a", **SECRET}},
    "storageos": {"storageos": {"volumeName": "a", **SECRET}},
    "csi": {"csi": {"driver": "a.test", "nodePublishSecretRef": {}}},
    "azureDisk": {"azureDisk": {"diskName": "a", "diskURI": "a"}},
}


def spelled() -> Iterator[tuple[str, Object]]:
    """Yield each case: its name and its JobSet."""
    for case, fields in OF_CONTAINERS.items():
        yield f"containers.{case}", _with(lambda pod, fields=fields: pod["containers"][0].update(deepcopy(fields)))
        sidecar = {"name": "sidecar", "image": "sidecar:1", "restartPolicy": "Always", **deepcopy(fields)}
        yield f"initContainers.{case}", _with(lambda pod, sidecar=sidecar: pod.update(initContainers=[sidecar]))
    for case, volume in VOLUMES.items():
        entry = {"name": "spelled", **volume}
        yield f"volumes.{case}", _with(lambda pod, entry=entry: pod.update(volumes=[entry]))
    yield "imagePullSecrets", _with(lambda pod: pod.update(imagePullSecrets=[{}]))


def _with(change: Any) -> Object:
    """Return a JobSet whose Pod template is changed."""
    manifest = deepcopy(jobset())
    pod = manifest["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]
    change(pod)
    if "fileKeyRef" in str(pod):
        pod["volumes"] = [SCRATCH]
    return manifest
