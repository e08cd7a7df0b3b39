"""Say what the agent adds to a Pod that the API server refuses, beside what a ResourceQuota has left. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from decimal import Decimal
from typing import Final

from inplace.common.injection.container_resources import agents_own, amounts
from inplace.common.injection.pod_roles import Member
from inplace.common.jobset.blocked import both_ends
from inplace.common.kube.quantity import parse_quantity, quantity_text
from inplace.common.wire import names as wire

KINDS: Final = ("requests", "limits")
# The API server's words: k8s.io/apiserver pkg/admission/plugin/resourcequota/controller.go, checkRequest.
_EXCEEDED: Final = re.compile(r"exceeded quota: ([^,\s]+), requested: (\S+), used: (\S+), limited: (\S+)")
_CREATING: Final = "Error creating: "  # the Job controller's
CURE: Final = f"raise the quota, lower the worker's requests, or set the agent's amounts in {wire.AGENT}"


def agents_amounts(member: Member) -> dict[str, Decimal]:
    """Return what the agent beside the worker adds to its Pod, by kind and name: `requests.cpu`, `limits.memory`."""
    found: dict[str, Decimal] = {}
    for container in agents_own(member):
        for kind in KINDS if container.is_sidecar else ():
            for name, amount in amounts(container, kind).items():
                found[f"{kind}.{name}"] = found.get(f"{kind}.{name}", Decimal(0)) + amount
    return found


def listed(amounts_by_name: Mapping[str, Decimal]) -> str:
    """Return amounts as a ResourceQuota's message has them."""
    return ", ".join(f"{name}={_shown(name, amount)}" for name, amount in amounts_by_name.items())


def refused_words(said: str, member: Member) -> str:
    """Return why Pods are refused, with figures.

    Args:
        said: the Job controller's Event.
        member: the Pods as the controller makes them, with the agent.
    """
    said = said.removeprefix(_CREATING)
    added = agents_amounts(member)
    found = _EXCEEDED.search(said)
    requested, used, limited = (_amounts(text) for text in found.groups()[1:]) if found is not None else ({}, {}, {})
    if found is None or not requested:
        return f"{both_ends(said)}; the agent's container has {listed(added)}, and {wire.AGENT} sets others"
    parts, fits = [], True
    for name, asked in requested.items():
        left = max(limited.get(name, Decimal(0)) - used.get(name, Decimal(0)), Decimal(0))
        key = name if name.startswith("limits.") else f"requests.{name.removeprefix('requests.')}"
        agents = added.get(key, Decimal(0))
        fits = fits and asked - agents <= left
        parts.append(
            f"{name}: a Pod asks for {_shown(name, asked)}, of which {_shown(name, agents)} for the agent "
            f"({_shown(name, agents * member.pods)} in all {member.pods:,} Pods of {member.name}), and "
            f"{_shown(name, left)} of {_shown(name, limited.get(name, Decimal(0)))} is left"
        )
    without = "without the agent it would fit" if fits else "without the agent it would not fit either"
    return f"exceeded quota {found[1]}: {'; '.join(parts)}; {without}; {CURE}"


def _amounts(text: str) -> dict[str, Decimal]:
    """Read `cpu=1010m,memory=32Mi`; what is no amount is left out."""
    pairs = (part.partition("=") for part in text.split(","))
    return {name: number for name, _, amount in pairs if (number := parse_quantity(amount)) is not None}


def _shown(name: str, amount: Decimal) -> str:
    return quantity_text(amount, is_bytes=name.endswith(("memory", "storage")))
