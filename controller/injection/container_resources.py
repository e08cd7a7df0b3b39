"""Read what containers request and what limits them, and the quality of service that follows. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from typing import Final

from inplace.common.kube.quantity import parse_quantity
from inplace.controller.injection.agent_pieces import COPIER
from inplace.controller.injection.pod_roles import Container, Member

JUDGED: Final = ("cpu", "memory")  # kubelet judges a Pod's class by these alone


def amounts(container: Container, kind: str) -> dict[str, Decimal]:
    """Return the container's requests or limits as numbers; a limit without a request is the request, as in the API."""
    resources = container.raw.get("resources")
    if not isinstance(resources, dict):
        return {}
    found = dict[str, Decimal]()
    for part in ("limits", kind):
        listed = resources.get(part)
        for name, text in listed.items() if isinstance(listed, dict) else ():
            if (number := parse_quantity(text)) is not None:
                found[str(name)] = number
    return found


def is_guaranteed(container: Container) -> bool:
    """Say whether a container alone would make a Guaranteed Pod.

    Source: k8s.io/kubernetes pkg/apis/core/v1/helper/qos, ComputePodQOS.
    """
    limits, requests = amounts(container, "limits"), amounts(container, "requests")
    return all(limits.get(name) and limits[name] == requests.get(name) for name in JUDGED)


def agents_own(member: Member) -> list[Container]:
    """Return the containers that stand in the Pod for the agent alone: a sidecar, a supervisor's copier."""
    return [one for one in member.every_container if one.is_agent_alone or (one.is_init and one.name == COPIER)]


def users_own(member: Member) -> list[Container]:
    """Return all other containers."""
    ours = agents_own(member)
    return [one for one in member.every_container if one not in ours]


def has_pod_level(member: Member) -> bool:
    """Say whether the Pod as a whole has resources; then these decide its class, and containers need none."""
    return bool(member.pod_spec.get("resources"))


def is_pod_guaranteed(member: Member, containers: Sequence[Container]) -> bool:
    """Say whether a Pod of these containers would be Guaranteed by them."""
    return bool(containers) and not has_pod_level(member) and all(map(is_guaranteed, containers))
