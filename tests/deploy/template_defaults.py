"""
The defaults that upstream's CRD sets inside a Pod's spec, by path; items are "[]".

Source: sigs.k8s.io/jobset v0.12.0, config/components/crd/bases, whose generator read k8s.io/api core/v1. The Workload
CRD of Kueue v0.17.0 has the same.
"""

from __future__ import annotations

from typing import Final

_OF_A_CONTAINER: Final = {
    "ports[].protocol": "TCP",
    "livenessProbe.grpc.service": "",
    "readinessProbe.grpc.service": "",
    "startupProbe.grpc.service": "",
    "env[].valueFrom.fileKeyRef.optional": False,
    "env[].valueFrom.configMapKeyRef.name": "",
    "env[].valueFrom.secretKeyRef.name": "",
    "envFrom[].configMapRef.name": "",
    "envFrom[].secretRef.name": "",
}
_OF_A_VOLUME: Final = {
    "azureDisk.fsType": "ext4",
    "azureDisk.readOnly": False,
    "cephfs.secretRef.name": "",
    "cinder.secretRef.name": "",
    "configMap.name": "",
    "csi.nodePublishSecretRef.name": "",
    "flexVolume.secretRef.name": "",
    "iscsi.iscsiInterface": "default",
    "iscsi.secretRef.name": "",
    "projected.sources[].configMap.name": "",
    "projected.sources[].secret.name": "",
    "rbd.keyring": "/etc/ceph/keyring",
    "rbd.pool": "rbd",
    "rbd.secretRef.name": "",
    "rbd.user": "admin",
    "scaleIO.fsType": "xfs",
    "scaleIO.secretRef.name": "",
    "scaleIO.storageMode": "ThinProvisioned",
    "storageos.secretRef.name": "",
}

TEMPLATE_DEFAULTS: Final = (
    {"imagePullSecrets[].name": ""}
    | {
        f"{kind}[].{path}": value
        for kind in ("containers", "initContainers", "ephemeralContainers")
        for path, value in _OF_A_CONTAINER.items()
    }
    | {f"volumes[].{path}": value for path, value in _OF_A_VOLUME.items()}
)
