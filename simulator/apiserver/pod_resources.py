"""
The rules of resource requests and limits.

Source: k8s.io/kubernetes/pkg/apis/core/validation/validation.go (1.37.2), validateResourceRequirements and what it
calls; pkg/apis/core/helper/helpers.go.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from decimal import Decimal
from math import ceil
from typing import Any, Final

from inplace.common.kube.quantity import parse_quantity
from inplace.simulator.apiserver import formats
from inplace.simulator.apiserver.status import StatusCause, bad_value, forbidden_field, not_supported, required

_HUGE: Final = "hugepages-"
_CONTAINER: Final = ("cpu", "ephemeral-storage", "memory")
_COUNTED: Final = (
    *("pods", "resourcequotas", "services", "replicationcontrollers", "secrets", "configmaps"),
    *("persistentvolumeclaims", "services.nodeports", "services.loadbalancers"),
)
_STANDARD: Final = frozenset(
    (
        *_CONTAINER,
        *_COUNTED,
        "storage",
        "requests.storage",
        *(f"{kind}.{name}" for kind in ("requests", "limits") for name in _CONTAINER),
    )
)


def amount(value: Any) -> Decimal:
    """Return a quantity that the server could decode."""
    return parse_quantity(value) or Decimal(0)


def resource_causes(resources: Mapping[str, Any], path: str, *, of_pod: bool = False) -> Iterator[StatusCause]:
    """Return the rules that requests and limits break, of a container or of a whole Pod (`of_pod`)."""
    limits, requests = resources.get("limits") or {}, resources.get("requests") or {}
    for kind, given in (("limits", limits), ("requests", requests)):
        for name, value in given.items():
            here = f"{path}.{kind}[{name}]"
            yield from _name_causes(name, here, of_pod=of_pod)
            yield from _value_causes(name, value, here)
    for name, value in requests.items():
        asked, may_exceed = amount(value), _is_native(name) and not name.startswith(_HUGE)
        if name not in limits:
            if not may_exceed:
                yield required(f"{path}.limits", "Required value: Limit must be set for non overcommitable resources")
        elif asked != (limit := amount(limits[name])) and not may_exceed:
            yield bad_value(f"{path}.requests", str(value), f"must be equal to {name} limit of {limits[name]}")
        elif asked > limit:
            why = f"must be less than or equal to {name} limit of {limits[name]}"
            yield bad_value(f"{path}.requests", str(value), why)
    names = {*limits, *requests}
    if any(name.startswith(_HUGE) for name in names) and not names & {"cpu", "memory"}:
        yield forbidden_field(path, "HugePages require cpu or memory")


def _name_causes(name: str, path: str, *, of_pod: bool) -> Iterable[StatusCause]:
    unqualified = formats.label_key(name)
    if unqualified:
        return [bad_value(path, name, why) for why in unqualified]
    if of_pod:
        supported = name in ("cpu", "memory") or name.startswith(_HUGE)
        return [] if supported else [not_supported(path, name, ("cpu", _HUGE, "memory"))]
    if "/" not in name:
        if name in _CONTAINER or name.startswith(_HUGE):
            return []
        found = [bad_value(path, name, "must be a standard resource for containers")]
        if name not in _STANDARD and not name.startswith("requests." + _HUGE):
            found.append(bad_value(path, name, "must be a standard resource type or fully qualified"))
        return found
    if _is_native(name) or _is_extended(name):
        return []
    return [bad_value(path, name, "doesn't follow extended resource name standard")]


def _value_causes(name: str, value: Any, path: str) -> Iterator[StatusCause]:
    number = amount(value)
    if number < 0:
        yield bad_value(path, str(value), "must be greater than or equal to 0")
    in_thousandths = ceil(number * 1000)  # the server rounds up to thousandths; Decimal's // rounds towards zero
    if (name in _COUNTED or _is_extended(name)) and in_thousandths % 1000:
        yield bad_value(path, str(value), "must be an integer")
    if name.startswith(_HUGE):
        size = parse_quantity(name.removeprefix(_HUGE))
        if size is None or size <= 0 or size % 1 or ceil(number) % size:
            yield bad_value(path, str(value), f"{value} is not positive integer multiple of {name}")


def _is_native(name: str) -> bool:
    return "/" not in name or "kubernetes.io/" in name


def _is_extended(name: str) -> bool:
    return not _is_native(name) and not name.startswith("requests.") and not formats.label_key(f"requests.{name}")


def consistency_causes(spec: Mapping[str, Any], path: str) -> Iterator[StatusCause]:
    """Return where the containers ask for more than their Pod. Source: validatePodResourceConsistency."""
    whole = spec.get("resources") or {}
    for name, value in (whole.get("requests") or {}).items():
        if (asked := _aggregate(spec, name, "requests")) > amount(value):
            why = f"must be greater than or equal to aggregate container requests of {asked:f}"
            yield bad_value(f"{path}.requests[{name}]", str(value), why)
    for name, value in (whole.get("limits") or {}).items():
        if name.startswith(_HUGE) and (asked := _aggregate(spec, name, "limits")) > amount(value):
            why = f"must be greater than or equal to aggregate container limits of {asked:f}"
            yield bad_value(f"{path}.limits[{name}]", str(value), why)
        for at, container in enumerate(spec["containers"]):
            limit = ((container.get("resources") or {}).get("limits") or {}).get(name)
            if limit is not None and amount(limit) > amount(value):
                why = f"must be less than or equal to pod limits of {value}"
                yield bad_value(f"{path}.containers[{at}][{name}].limits", str(limit), why)


def _aggregate(spec: Mapping[str, Any], name: str, kind: str) -> Decimal:
    """Return the sum of containers and sidecars; more where an init container needs more before."""

    def of(container: Mapping[str, Any]) -> Decimal:
        return amount(((container.get("resources") or {}).get(kind) or {}).get(name, 0))

    beside, most = Decimal(0), Decimal(0)
    for container in spec.get("initContainers") or ():
        if container.get("restartPolicy") == "Always":
            beside += of(container)
            most = max(most, beside)
        else:
            most = max(most, beside + of(container))
    return max(most, beside + sum(map(of, spec["containers"])))
