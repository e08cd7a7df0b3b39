"""
The rules of environment variables, and of the references to a Pod's own fields that volumes have too.

Source: k8s.io/kubernetes/pkg/apis/core/validation/validation.go (1.37.2), the function that each rule names;
pkg/apis/core/pods/helpers.go.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from inplace.simulator.apiserver import formats
from inplace.simulator.apiserver.pod_resources import amount
from inplace.simulator.apiserver.status import StatusCause, bad_value, not_supported, required

Part = dict[str, Any]
VOLUME_FIELDS: Final = tuple(f"metadata.{name}" for name in ("annotations", "labels", "name", "namespace", "uid"))
"""The fields of a Pod that a downwardAPI volume may show."""

_ENV_FIELDS: Final = (
    *("metadata.name", "metadata.namespace", "metadata.uid", "spec.nodeName", "spec.serviceAccountName"),
    *("status.hostIP", "status.hostIPs", "status.podIP", "status.podIPs"),
)
_OTHER_FIELDS: Final = ("spec.restartPolicy", "spec.schedulerName", "status.phase", "spec.host")
_CONTAINER_FIELDS: Final = tuple(
    f"{kind}.{name}" for kind in ("limits", "requests") for name in ("cpu", "ephemeral-storage", "memory")
)
_DIVISORS: Final = frozenset(map(amount, ("1", *(f"1{unit}{i}" for unit in "KMGTPE" for i in ("", "i")), "1k")))


def field_ref(reference: Part, path: str, allowed: tuple[str, ...]) -> Iterator[StatusCause]:
    """Source: validateObjectFieldSelector, ConvertDownwardAPIFieldLabel."""
    field, version = reference.get("fieldPath") or "", reference.get("apiVersion") or "v1"
    here = f"{path}.fieldPath"
    if not field:
        yield required(here)
        return
    head, subscripted, key = field.removesuffix("']").partition("['")
    if version != "v1":
        yield bad_value(here, field, f"error converting fieldPath: unsupported pod version: {version}")
    elif field.endswith("']") and subscripted and head:
        if head not in ("metadata.annotations", "metadata.labels"):
            why = f"error converting fieldPath: field label does not support subscript: {field}"
            yield bad_value(here, field, why)
        else:
            form = formats.annotation_key if head == "metadata.annotations" else formats.label_key
            yield from (bad_value(path, key, why) for why in form(key))
    elif field not in (*_ENV_FIELDS, *VOLUME_FIELDS, *_OTHER_FIELDS):
        yield bad_value(here, field, f"error converting fieldPath: field label not supported: {field}")
    elif (field if field != "spec.host" else "spec.nodeName") not in allowed:
        yield not_supported(here, field, allowed)


def resource_ref(reference: Part, path: str, *, in_volume: bool) -> Iterator[StatusCause]:
    """Source: validateContainerResourceFieldSelector, validateContainerResourceDivisor."""
    name, divisor = reference.get("resource") or "", amount(reference.get("divisor") or 0)
    is_huge = name.startswith(("requests.hugepages-", "limits.hugepages-"))
    if in_volume and not reference.get("containerName"):
        yield required(f"{path}.containerName")
    elif not name:
        yield required(f"{path}.resource")
    elif name not in _CONTAINER_FIELDS and not is_huge:
        yield not_supported(f"{path}.resource", name, _CONTAINER_FIELDS)
    if not divisor or (name not in _CONTAINER_FIELDS and not is_huge):
        return
    of_cpu = name.endswith(".cpu")
    if divisor not in (frozenset((amount("1m"), amount("1"))) if of_cpu else _DIVISORS):
        values = "1m and 1" if of_cpu else "1, 1k, 1M, 1G, 1T, 1P, 1E, 1Ki, 1Mi, 1Gi, 1Ti, 1Pi, 1Ei"
        kind = name.partition(".")[2].partition("-")[0].replace("ephemeral", "local ephemeral storage")
        yield bad_value(
            f"{path}.divisor", name, f"only divisor's values {values} are supported with the {kind} resource"
        )


def variable(variable: Part, path: str) -> Iterator[StatusCause]:
    """Source: validateEnvVarValueFrom."""
    source = variable.get("valueFrom")
    if source is None:
        return
    here, names = f"{path}.valueFrom", ("fieldRef", "resourceFieldRef", "configMapKeyRef", "secretKeyRef", "fileKeyRef")
    given = [name for name in names if source.get(name) is not None]
    if "fieldRef" in given:
        yield from field_ref(source["fieldRef"], f"{here}.fieldRef", _ENV_FIELDS)
    if "resourceFieldRef" in given:
        yield from resource_ref(source["resourceFieldRef"], f"{here}.resourceFieldRef", in_volume=False)
    if not given:
        kinds = "`fieldRef`, `resourceFieldRef`, `configMapKeyRef`, `secretKeyRef` or `fileKeyRef`"
        yield bad_value(here, "", f"must specify one of: {kinds}")
    elif variable.get("value"):
        yield bad_value(here, "", "may not be specified when `value` is not empty")
    elif len(given) > 1:
        yield bad_value(here, "", "may not have more than one field specified at a time")


def variables_from(source: Part, path: str) -> Iterator[StatusCause]:
    """Source: ValidateEnvFrom."""
    given = [name for name in ("configMapRef", "secretRef") if source.get(name) is not None]
    if len(given) != 1:
        many = "may not have more than one field specified at a time"
        why = many if given else "must specify one of: `configMapRef` or `secretRef`"
        yield bad_value(path.rpartition("[")[0], "", why)
