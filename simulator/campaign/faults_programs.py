"""Faults of the controllers' and agents' processes, and of their clocks."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from inplace.common.kube.client import MERGE_PATCH
from inplace.common.kube.http.request import Request
from inplace.common.kube.resources import LEASES
from inplace.simulator.campaign.containers import agent_client
from inplace.simulator.campaign.disturbance import is_lease, is_write
from inplace.simulator.campaign.fault import FaultSite, accepted, fault
from inplace.simulator.campaign.process import Process, current_process
from inplace.simulator.campaign.world import LEASE, World
from inplace.simulator.cluster.access import CONTROLLER_NAMESPACE

CONTROLLER, AGENT, TIME = FaultSite.CONTROLLER, FaultSite.AGENT, FaultSite.TIME
AWAITS_AHEAD_MAX = 120  # a pass over a JobSet, or an agent's way to its announcement, waits some dozens of times


@fault("controller-crash", CONTROLLER, "a controller is killed, and another process replaces it", kind="controller")
async def _crash(world: World, rng: Random, name: str, kind: str) -> None:
    _kill(world, name, _one(world, rng, kind))


@fault("controller-crash-at-await", CONTROLLER, "a controller dies at one of its next awaits", kind="controller")
async def _crash_at_await(world: World, rng: Random, name: str, kind: str) -> None:
    if (process := _one(world, rng, kind)) is not None:
        process.crash_at = process.awaits + rng.randint(1, AWAITS_AHEAD_MAX)
        world.note_fault(name, f"{process.name} at await {process.crash_at}")


@fault(
    "controller-crash-after-write",
    CONTROLLER,
    "a controller dies after its next write, before the answer",
    clients="controller",
    when="after",
)
@fault(
    "controller-crash-before-write",
    CONTROLLER,
    "a controller dies before its next write reaches the server",
    clients="controller",
    when="before",
)
async def _crash_at_write(world: World, rng: Random, name: str, clients: str, when: str) -> None:
    """Kill the process that does one of the next writes of `clients`, before or after the write."""
    left = rng.randint(1, 4)

    def crash(client: str, request: Request, moment: str) -> None:
        nonlocal left
        if client.startswith(clients) and moment == when and is_write(request) and not is_lease(request):
            left -= 1
            if left == 0:
                _kill(world, name, current_process())

    _on_write(world, crash)


@fault("controllers-crash", CONTROLLER, "all controllers are killed at once")
async def _controllers_crash(world: World, rng: Random, name: str) -> None:  # noqa: ARG001
    for process in list(world.controllers.values()):
        _kill(world, name, process)


@fault("controller-pause", CONTROLLER, "a controller pauses for up to eight seconds", kind="controller")
async def _pause_one(world: World, rng: Random, name: str, kind: str) -> None:
    await _pause(world, name, _one(world, rng, kind), rng.uniform(0.1, 8.0))


@fault("two-leaders", CONTROLLER, "the leader pauses until another controller leads, and then goes on")
async def _two_leaders(world: World, rng: Random, name: str) -> None:
    holder = world.lease_holder()
    leader = next((process for process in world.controllers.values() if process.name == holder), None)
    await _pause(world, name, leader, rng.uniform(16.0, 30.0))


@fault("lease-stolen", CONTROLLER, "another name is written into the Lease")
async def _lease_stolen(world: World, rng: Random, name: str) -> None:
    spec = {"holderIdentity": "thief", "leaseDurationSeconds": rng.randint(1, 5)}
    await _touch_lease(world, name, spec)


@fault("lease-deleted", CONTROLLER, "the Lease is deleted while it is held")
async def _lease_deleted(world: World, rng: Random, name: str) -> None:  # noqa: ARG001
    if await accepted(world.client("user").delete(LEASES, CONTROLLER_NAMESPACE, LEASE)):
        world.note_fault(name, LEASE)


@fault("lease-lost-mid-write", CONTROLLER, "another controller gets the Lease while a write of the leader is under way")
async def _lease_lost(world: World, rng: Random, name: str) -> None:  # noqa: ARG001
    done = False

    def steal(client: str, request: Request, when: str) -> None:
        nonlocal done
        if not done and when == "before" and client.startswith("controller") and not is_lease(request):
            done = True
            world.go(_touch_lease(world, name, {"holderIdentity": "thief", "leaseDurationSeconds": 2}), name)

    _on_write(world, steal)


async def _touch_lease(world: World, name: str, spec: dict[str, object]) -> None:
    lease = CONTROLLER_NAMESPACE, LEASE
    if await accepted(world.client("user").patch(LEASES, *lease, {"spec": spec}, kind=MERGE_PATCH)):
        world.note_fault(name, f"{spec}")


fault("agent-crash", AGENT, "an agent is killed, and kubelet restarts all containers of its Pod", kind="agent")(_crash)


@fault("agents-crash", AGENT, "all agents are killed at once")
async def _agents_crash(world: World, rng: Random, name: str) -> None:  # noqa: ARG001
    for container in list(world.machine.agents.values()):
        _kill(world, name, container.process)


fault("agent-crash-at-await", AGENT, "an agent dies at one of its next awaits", kind="agent")(_crash_at_await)


@fault("agent-crash-at-start", AGENT, "the next agent of a Pod dies at one of its first awaits")
async def _agent_crash_at_start(world: World, rng: Random, name: str) -> None:
    if world.pods:
        client = agent_client(rng.choice(world.pods))
        world.machine.crash_at[client] = rng.randint(1, 30)
        world.note_fault(name, client)


for _name, _what, _when in (
    ("agent-crash-before-patch", "an agent dies before its announcement reaches the server", "before"),
    ("agent-crash-after-patch", "an agent dies after its announcement, before the answer", "after"),
):
    fault(_name, AGENT, _what, clients="agent/", when=_when)(_crash_at_write)
fault("agent-pause", AGENT, "an agent pauses for up to eight seconds", kind="agent")(_pause_one)


@fault("clock-back", TIME, "a controller's wall clock jumps an hour back", by_s=-3600.0)
@fault("clock-forward", TIME, "a controller's wall clock jumps an hour ahead", by_s=3600.0)
async def _jump(world: World, rng: Random, name: str, by_s: float) -> None:
    rng.choice(world.controller_clocks).skew_s += by_s
    world.judge.clocks_agree = False
    world.note_fault(name, f"{by_s:+g} s")


@fault("clock-drift", TIME, "a controller's monotonic clock runs fast or slow by a twentieth")
async def _clock_drift(world: World, rng: Random, name: str) -> None:
    clock = rng.choice(world.controller_clocks)
    clock.drift(rng.choice((0.95, 1.05)))
    world.judge.clocks_agree = False
    world.note_fault(name, f"rate {clock.rate}")


def _one(world: World, rng: Random, kind: str) -> Process | None:
    """Return an agent or a controller; None when there is none."""
    if kind == "agent":
        found = [container.process for container in world.machine.agents.values()]
    else:
        found = [process for _, process in sorted(world.controllers.items())]
    return rng.choice(found) if found else None


def _kill(world: World, name: str, process: Process | None) -> None:
    if process is not None and process.alive:
        world.note_fault(name, process.name)
        process.kill()


def _on_write(world: World, see: Callable[[str, Request, str], None]) -> None:
    """Add an observer that is called before and after every write."""
    before = world.network.on_write

    def both(client: str, request: Request, moment: str) -> None:
        before(client, request, moment)
        if not world.is_calm:
            see(client, request, moment)

    world.network.on_write = both


async def _pause(world: World, name: str, process: Process | None, for_s: float) -> None:
    if process is None or not process.alive:
        return
    world.note_fault(name, f"{process.name} for {for_s:.3f} s")
    process.pause()
    world.at_calm.append(process.resume)
    await world.clock.sleep(for_s)
    process.resume()
