"""
The rules between the fields of a volume's source.

Source: k8s.io/kubernetes/pkg/apis/core/validation/validation.go (1.37.2), the function that each rule names.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

from inplace.simulator.apiserver import formats, pod_certificates
from inplace.simulator.apiserver.decoding import TYPES
from inplace.simulator.apiserver.pod_resources import amount
from inplace.simulator.apiserver.pod_variables import VOLUME_FIELDS, field_ref, resource_ref
from inplace.simulator.apiserver.status import (
    StatusCause,
    bad_value,
    forbidden_field,
    not_supported,
    repeated,
    required,
)

Part = dict[str, Any]
_CLAIM_MODES: Final = ("ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod")
_ISCSI: Final = re.compile(
    r"^(iqn.*iqn\.|iqn\.)\d{4}-\d{2}\.([A-Za-z0-9.-]+)(:[^,;*&$|\s]+)$|^eui.[A-Za-z0-9]{16}$|^naa.[A-Za-z0-9]{32}$",
    re.ASCII,
)


def downward_file(file: Part, path: str) -> Iterator[StatusCause]:
    """Source: validateDownwardAPIVolumeFile."""
    field, resource = file.get("fieldRef"), file.get("resourceFieldRef")
    if field is not None:
        yield from field_ref(field, f"{path}.fieldRef", VOLUME_FIELDS)
        if resource is not None:
            yield bad_value(path, "resource", "fieldRef and resourceFieldRef can not be specified simultaneously")
    elif resource is not None:
        yield from resource_ref(resource, f"{path}.resourceFieldRef", in_volume=True)
    else:
        yield required(path, "Required value: one of fieldRef and resourceFieldRef is required")


def projected(volume: Part, path: str) -> Iterator[StatusCause]:
    """Source: validateProjectionSources."""
    paths = list[str]()
    for at, source in enumerate(volume.get("sources") or ()):
        kinds = [name for name in TYPES["VolumeProjection"] if source.get(name) is not None]
        if len(kinds) > 1:
            yield forbidden_field(f"{path}.sources[{at}]", "may not specify more than 1 volume type per source")
        paths += [item.get("path") or "" for kind in kinds for item in source[kind].get("items") or ()]
        paths += pod_certificates.paths(source)
        lifetime = (source.get("serviceAccountToken") or {}).get("expirationSeconds", 3600)
        here = f"{path}.sources[{at}].serviceAccountToken.expirationSeconds"
        if lifetime < 600:
            yield bad_value(here, lifetime, "may not specify a duration less than 10 minutes")
        if lifetime > 2**32:
            yield bad_value(here, lifetime, "may not specify a duration larger than 2^32 seconds")
    yield from (bad_value(path, name, "conflicting duplicate paths") for _, name in repeated(paths))


def empty_dir(source: Part, path: str) -> Iterator[StatusCause]:
    """Source: validateVolumeSource; the medium may be any text."""
    if amount(source.get("sizeLimit") or 0) < 0:
        yield forbidden_field(f"{path}.sizeLimit", "SizeLimit field must be a valid resource quantity")


def csi(source: Part, path: str) -> Iterator[StatusCause]:
    """Source: validateCSIVolumeSource."""
    if len(source.get("driver") or "") > 63:
        yield StatusCause(f"{path}.driver", "Too long: may not be more than 63 bytes", "FieldValueTooLong")
    secret = source.get("nodePublishSecretRef")
    if secret is not None and not secret.get("name"):
        yield required(f"{path}.nodePublishSecretRef.name")
    elif secret is not None:
        yield from (bad_value(f"{path}.name", secret["name"], why) for why in formats.subdomain(secret["name"]))


def fibre_channel(source: Part, path: str) -> Iterator[StatusCause]:
    """Source: validateFCVolumeSource."""
    names, lun = source.get("targetWWNs"), source.get("lun")
    if not names and not source.get("wwids"):
        why = "Required value: must specify either targetWWNs or wwids, but not both"
        yield required(f"{path}.targetWWNs", why)
    if names and source.get("wwids"):
        yield bad_value(f"{path}.targetWWNs", names, "targetWWNs and wwids can not be specified simultaneously")
    if names and lun is None:
        yield required(f"{path}.lun", "Required value: lun is required if targetWWNs is specified")
    elif names:
        yield from (bad_value(f"{path}.lun", lun, why) for why in formats.between(0, 255)(lun))


def flocker(source: Part, path: str) -> Iterator[StatusCause]:
    """Source: validateFlockerVolumeSource."""
    name, uuid = source.get("datasetName") or "", source.get("datasetUUID")
    if not name and not uuid:
        yield required(path, "Required value: one of datasetName and datasetUUID is required")
    if name and uuid:
        yield bad_value(path, "resource", "datasetName and datasetUUID can not be specified simultaneously")
    if "/" in name:
        yield bad_value(f"{path}.datasetName", name, "must not contain '/'")


def flex(source: Part, path: str) -> Iterator[StatusCause]:
    """Source: validateFlexVolumeSource."""
    for key in source.get("options") or ():
        if f".{key.partition('/')[0].lower()}".endswith((".kubernetes.io", ".k8s.io")):
            yield bad_value(f"{path}.options[{key}]", key, "kubernetes.io and k8s.io namespaces are reserved")


def azure_disk(source: Part, path: str) -> Iterator[StatusCause]:
    """Source: validateAzureDisk."""
    kind, uri = source.get("kind", "Shared"), source.get("diskURI") or ""
    managed = "/subscriptions/{sub-id}/resourcegroups/{group-name}/providers/microsoft.compute/disks/{disk-id}"
    blob = "https://{account-name}.blob.core.windows.net/{container-name}/{disk-name}.vhd"
    wanted, start = (managed, "/subscriptions/") if kind == "Managed" else (blob, "https://")
    if not uri.startswith(start):
        yield not_supported(f"{path}.diskURI", uri, (wanted,))


def iscsi(source: Part, path: str) -> Iterator[StatusCause]:
    """Source: validateISCSIVolumeSource."""
    if (source.get("chapAuthDiscovery") or source.get("chapAuthSession")) and source.get("secretRef") is None:
        yield required(f"{path}.secretRef")
    for field, name in (("iqn", source.get("iqn") or None), ("initiatorname", source.get("initiatorName"))):
        if name is not None and not name.startswith(("iqn", "eui", "naa")):
            yield bad_value(f"{path}.{field}", name, "must be valid format starting with iqn, eui, or naa")
        elif name is not None and not _ISCSI.search(name):
            yield bad_value(f"{path}.{field}", name, "must be valid format")


def quobyte(source: Part, path: str) -> Iterator[StatusCause]:
    """Source: validateQuobyteVolumeSource."""
    pairs = [pair.rpartition(":") for pair in (source.get("registry") or ":").split(",")]
    rule = "must be a host:port pair or multiple pairs separated by commas"
    if len(source.get("tenant") or "") >= 65:
        why = "Required value: must be a UUID and may not exceed a length of 64 characters"
        yield required(f"{path}.tenant", why)
    elif any(not colon or (":" in host and not host.startswith("[")) for host, colon, _ in pairs):
        yield bad_value(f"{path}.registry", source["registry"], rule)


def secret_named(source: Part, path: str) -> Iterator[StatusCause]:
    """Source: validateCinderVolumeSource, validateStorageOSVolumeSource."""
    if source.get("secretRef") is not None and not source["secretRef"].get("name"):
        yield required(f"{path}.secretRef.name")


def claim(spec: Part, path: str) -> Iterator[StatusCause]:
    """Source: ValidatePersistentVolumeClaimSpec."""
    modes = spec.get("accessModes") or []
    yield from (not_supported(f"{path}.accessModes", one, _CLAIM_MODES) for one in modes if one not in _CLAIM_MODES)
    if "ReadWriteOncePod" in modes and {*modes} & {*_CLAIM_MODES[:3]}:
        yield forbidden_field(f"{path}.accessModes", "may not use ReadWriteOncePod with other access modes")
    size = ((spec.get("resources") or {}).get("requests") or {}).get("storage")
    if size is None:
        yield required(f"{path}.resources[storage]")
    elif amount(size) <= 0:
        yield bad_value(f"{path}.resources[storage]", str(size), "must be greater than zero")
    for field in ("dataSource", "dataSourceRef"):
        if (source := spec.get(field)) is None:
            continue
        yield from (required(f"{path}.{field}.{name}") for name in ("name", "kind") if not source.get(name))
        if not source.get("apiGroup") and source.get("kind") != "PersistentVolumeClaim":
            why = "must be 'PersistentVolumeClaim' when referencing the default apiGroup"
            yield bad_value(f"{path}.{field}", source.get("kind") or "", why)


def claim_metadata(template: Part, path: str) -> Iterator[StatusCause]:
    """Source: ValidateTemplateObjectMeta."""
    for name, value in (template.get("metadata") or {}).items():
        if name not in ("labels", "annotations") and value:
            yield forbidden_field(f"{path}.metadata.{name}", "cannot be set")
