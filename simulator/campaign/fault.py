"""The type of a fault, and the decorator that enters it into the catalogue."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from enum import Enum
from functools import partial
from random import Random
from typing import Any, TypeVar

from inplace.common.kube.errors import ApiError
from inplace.simulator.campaign.containers import agent_client
from inplace.simulator.campaign.world import World

FaultFunction = Callable[[World, Random, str], Awaitable[None]]
Strike = TypeVar("Strike", bound=Callable[..., Awaitable[None]])


class FaultSite(Enum):
    """Which part of the system a fault disturbs."""

    API = "API server"
    NETWORK = "network"
    CONTROLLER = "controller"
    AGENT = "agent"
    NODE = "kubelet, Pod, node"
    USER = "user"
    TIME = "time"


@dataclass(frozen=True, slots=True)
class Fault:
    """One kind of fault.

    Args:
        strike: causes the fault; counts with `World.note_fault` (or through a network rule) that it had an effect.
        what: its effect, for the table of faults.
    """

    name: str
    place: FaultSite
    what: str
    strike: FaultFunction


ENTERED: dict[str, dict[str, Fault]] = {}  # by module: which of them is imported first may not matter


def fault(name: str, place: FaultSite, what: str, **settings: Any) -> Callable[[Strike], Strike]:
    """Enter a function into the catalogue; it gets the settings, beside what every `FaultFunction` gets.

    One function may be several faults, with other settings each. Of decorators on one function the LAST is entered
    first. Each seed draws from the catalogue by position: another order is another meaning of every seed.
    """

    def enter(strike: Strike) -> Strike:
        assert all(name not in faults for faults in ENTERED.values()), f"two faults are called {name}"
        faults = ENTERED.setdefault(strike.__module__, {})
        faults[name] = Fault(name, place, what, partial(strike, **settings))
        return strike

    return enter


async def accepted(request: Awaitable[object]) -> bool:
    """Await a person's request; say whether the server did it: the object may be gone, or not allow it."""
    try:
        await request
    except ApiError:
        return False
    return True


def is_program(client: str) -> bool:
    """Return whether a client is an agent or a controller."""
    return client.startswith(("agent/", "controller-"))


def one_of(world: World, rng: Random, *kinds: str) -> Callable[[str], bool]:
    """Return a predicate on client names that holds for all clients of one kind, or for one of them."""
    kind = rng.choice(kinds or ("agent", "controller"))
    names = [agent_client(pod) for pod in world.pods] if kind == "agent" else sorted(world.controllers)
    if not names or rng.random() < 0.4:
        return lambda client: client.startswith(kind)
    chosen = rng.choice(names)
    return lambda client: client == chosen
