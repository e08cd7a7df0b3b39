"""The variants of benchmarks.herd: kinds of agents, with and without deploy/apf, slots and a limit on concurrency."""

from __future__ import annotations

import statistics
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Variant:
    """One way to start a group.

    Args:
        apf: deploy/apf is applied.
        slots: agents start in slots.
        obvious: an obvious kubernetes_asyncio agent's requests instead of ours.
        capacity: at most as many at a time as the server does best with.
    """

    name: str
    apf: bool
    slots: bool = False
    obvious: bool = False
    capacity: bool = False


CAPACITY = Variant("capacity", apf=True, capacity=True)
WITH_APF = Variant("with apf, no slots", apf=True)  # the setting that deploy/apf recommends
WITHOUT = Variant("without apf, slots", apf=False, slots=True)  # the defaults
VARIANTS = (
    CAPACITY,
    WITH_APF,
    WITHOUT,
    Variant("with apf, slots", apf=True, slots=True),
    Variant("without apf, no slots", apf=False),
    Variant("obvious agent, without apf", apf=False, obvious=True),
    Variant("obvious agent, with apf", apf=True, obvious=True),
)


@dataclass(frozen=True, slots=True)
class Round:
    """What one start of the group took.

    Args:
        seconds: until the last agent had announced and watched; median_s is the median agent's.
        rejected: 429 answers, as the clients counted them.
        rejected_by_server: as the server did.
        server_cpu_s, client_cpu_s: of kube-apiserver, and of all client processes together.
        seats: what the default level had at the beginning.
        failures: other failures, by name.
    """

    seconds: float
    median_s: float
    rejected: int
    rejected_by_server: int
    requests: int
    server_cpu_s: float
    client_cpu_s: float
    seats: int
    failures: dict[str, int] = field(default_factory=dict)


def row_of(variant: Variant, rounds: list[Round], agents: int) -> dict[str, Any]:
    """Return one row: medians over the rounds, with their spread."""

    def median(name: str, digits: int = 3) -> float:
        return round(float(statistics.median(getattr(each, name) for each in rounds)), digits)

    return {
        "variant": variant.name,
        "seconds": median("seconds"),
        "seconds_min": round(min(each.seconds for each in rounds), 3),
        "seconds_max": round(max(each.seconds for each in rounds), 3),
        "median_agent_seconds": median("median_s"),
        "rejected": median("rejected", 1),
        "rejected_max": max(each.rejected for each in rounds),
        "requests_per_agent": round(median("requests") / agents, 2),
        "server_cpu_ms_per_agent": round(1e3 * median("server_cpu_s") / agents, 2),
        "client_cpu_ms_per_agent": round(1e3 * median("client_cpu_s") / agents, 2),
        "seats": median("seats", 0),
        "failures": {name: sum(each.failures.get(name, 0) for each in rounds) for name in _names(rounds)},
    }


def _names(rounds: list[Round]) -> list[str]:
    return sorted({name for each in rounds for name in each.failures})
