"""
Read what containers request and what limits them, and choose it for the agent's. Pure.

By default the agent's request little and have no limit. They get limits where the Pod's other containers have them: the
Pod stays Guaranteed, and a ResourceQuota or a LimitRange that asks for limits lets it in.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal
from typing import Final

from inplace.common.injection.agent_pieces import COPIER
from inplace.common.injection.finding import Finding, refusal
from inplace.common.injection.pod_roles import Container, Member
from inplace.common.jobset.settings import AGENT, RESOURCE_KINDS, RESOURCE_NAMES
from inplace.common.kube.quantity import parse_quantity
from inplace.common.kube.resources import KubeObject

JUDGED: Final = ("cpu", "memory")  # kubelet judges a Pod's class by these alone
_WHERE: Final = f'metadata.annotations["{AGENT.key}"]'
REQUESTS: Final[Mapping[str, str]] = {"cpu": "10m", "memory": "32Mi"}
# An agent's start takes 80 to 170 ms of CPU: half a core at most doubles it, 10m would make 8 s and more of it.
# It is no whole core, which kubelet's static policy would take from the workers. An agent has 25 MB; the rest is for a
# JobSet of etcd's limit (1.5 MiB), read whole.
LIMITS: Final[Mapping[str, str]] = {"cpu": "500m", "memory": "128Mi", "ephemeral-storage": "128Mi"}


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


def amounts_asked(member: Member) -> dict[str, str]:
    """Return the amounts that the JobSet asks for, by kind and name as a ResourceQuota has them."""
    found = dict[str, str]()
    for name, amount in AGENT.read_or_default(member.annotations).items():
        if name.partition(".")[0] in RESOURCE_KINDS:
            found[name] = amount
        elif name in RESOURCE_NAMES:
            found |= {f"{kind}.{name}": amount for kind in RESOURCE_KINDS}
    return found


def agent_resources(member: Member) -> KubeObject:
    """Return the resources of a container of the agent's in this Pod, with the agent or without it."""
    theirs = users_own(member)
    if has_pod_level(member):  # these cover the agent; requests of its own could exceed them
        wanted = dict[str, str]()
    else:
        limited = [name for name in LIMITS if theirs and all(name in amounts(one, "limits") for one in theirs)]
        wanted = {f"requests.{name}": amount for name, amount in REQUESTS.items()}
        wanted |= {f"limits.{name}": LIMITS[name] for name in limited}
        if is_pod_guaranteed(member, theirs):
            wanted |= {f"requests.{name}": LIMITS[name] for name in JUDGED}
    wanted |= amounts_asked(member)
    kinds = {
        kind: {name: wanted[key] for name in RESOURCE_NAMES if (key := f"{kind}.{name}") in wanted}
        for kind in RESOURCE_KINDS
    }
    return {kind: listed for kind, listed in kinds.items() if listed}


def check_resources(member: Member, agent: Container) -> Iterator[Finding]:
    """Yield amounts that the API server refuses, or that would take the Pod its class."""
    requests, limits = amounts(agent, "requests"), amounts(agent, "limits")
    above = [name for name, limit in limits.items() if requests.get(name, 0) > limit]
    if above:
        found = f"a request of {above[0]} above its limit"
        yield refusal(_WHERE, found, "a limit that is no less than the request", f"name {above[0]}=AMOUNT, for both")
    elif is_pod_guaranteed(member, users_own(member)) and any(
        limits.get(name) is None or requests.get(name) != limits[name] for name in JUDGED
    ):
        needed = "limits that equal the requests: the worker is Guaranteed"
        yield refusal(_WHERE, "amounts that make the Pod Burstable", needed, "name cpu=AMOUNT,memory=AMOUNT")
