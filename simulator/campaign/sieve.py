"""
Disturb one program at every write and delivery of a run, by Sieve's three patterns.

A scenario runs once undisturbed; its writes and deliveries are counted. Then it runs again for each of them:

* intermediate states: the program that sends the k-th write dies before it, or after it;
* unobserved states: the k-th delivery does not come. The watch breaks and its history is forgotten. When the
  client may reconnect, it sees the current objects and never the changes in between;
* stale states: another API server has trailed since the delivery before, and the client goes there: it is
  reconnected, or it dies a little later and its successor begins there.

Up to its disturbance a run is the same as the reference, so both have the same k-th write and delivery.
Source: Sun, Luo, Suresh et al., "Automatic Reliability Testing for Cluster Management Controllers", OSDI 2022.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import Enum

from inplace.common.kube.http.request import Request
from inplace.common.wire.mode import Mode
from inplace.simulator.campaign.catalogue import CATALOGUE
from inplace.simulator.campaign.disturbance import DisturbanceKind, is_lease, is_write
from inplace.simulator.campaign.network import Ending, OpenStream
from inplace.simulator.campaign.process import Process, current_process
from inplace.simulator.campaign.run import Outcome, ScheduledFault, run_scenario
from inplace.simulator.campaign.scenario import Scenario
from inplace.simulator.campaign.world import CacheDelay, World

SEED = 1
UNTIL_S = 12.0
AWAY_S = 1.5  # how long a client stays disconnected after a missed delivery: about as long as a restart takes
STALE_S = 4.0  # how far the other API server trails: longer than an agent's restart takes
FAULT = "sieve"
WHO = ("controller-", "agent/")  # beginnings of clients' names


class Pattern(Enum):
    """The disturbance at the k-th write or delivery."""

    BEFORE_WRITE = "dies before its write"
    AFTER_WRITE = "dies after its write"
    UNOBSERVED = "misses a delivery"
    STALE = "goes back to a server that has not seen it"
    STALE_START = "acts on it and dies, and its successor begins at a server that has not seen it"


@dataclass(frozen=True, slots=True)
class SievePlan:
    """One disturbance of one scenario.

    Args:
        number: of the write or delivery, counted over all of `who`, from 0.
        since_s: for stale states: when the other server's caches stop.
    """

    situation: str
    pattern: Pattern
    who: str
    number: int
    since_s: float = 0.0

    def __str__(self) -> str:
        return f"{self.situation}: {self.who.strip('-/')} {self.pattern.value} (number {self.number})"


@dataclass(frozen=True, slots=True)
class Situation:
    """A scenario with the faults that every run of it has."""

    scenario: Scenario
    strikes: tuple[tuple[float, str], ...] = ()

    def run(self, *, keeps: bool = False, prepare: Counting | None = None) -> Outcome:
        """Run the situation."""
        strikes = tuple(ScheduledFault(n, at_s, CATALOGUE[name]) for n, (at_s, name) in enumerate(self.strikes))
        return run_scenario(SEED, self.scenario, strikes, until_s=UNTIL_S, prepare=prepare or Counting(), keeps=keeps)


_TWO = Scenario(pods_per_job=2, servers=2, lags_s=(0.0, 0.0))
_SUPERVISED = replace(_TWO, mode=Mode.SUPERVISOR)

SITUATIONS: dict[str, Situation] = {
    "first start": Situation(_TWO),
    "one failure": Situation(_TWO, ((4.0, "worker-exit"),)),
    "one failure, supervised": Situation(_SUPERVISED, ((4.0, "worker-exit"),)),
    "two failures at once": Situation(_TWO, ((4.0, "worker-exit"), (4.0, "worker-exit"))),
    "failure during the barrier": Situation(_TWO, ((4.0, "worker-exit"), (4.8, "agent-crash"))),
    "Pod replaced": Situation(_TWO, ((4.0, "pod-deleted"),)),
    "node lost": Situation(replace(_TWO, jobs=2, pods_per_job=1), ((4.0, "node-death-and-return"),)),
    "resize in mid-restart": Situation(_TWO, ((4.0, "worker-exit"), (4.3, "resize"))),
    "suspended in mid-restart": Situation(_TWO, ((4.0, "worker-exit"), (4.3, "suspend"))),
    "suspended while it trains": Situation(replace(_TWO, jobs=2, pods_per_job=1), ((4.0, "suspend"),)),
    "suspended while a Pod is replaced": Situation(_TWO, ((4.0, "pod-deleted"), (5.0, "suspend"))),
    "JobSet recreated": Situation(_TWO, ((4.0, "jobset-recreated"),)),
}


class Counting:
    """A hook into a world, called before the start, that counts the writes and deliveries that a plan can disturb."""

    def __init__(self) -> None:
        self.world: World
        self.writes: dict[str, int] = dict.fromkeys(WHO, 0)
        self.deliveries: dict[str, list[float]] = {who: [] for who in WHO}

    def __call__(self, world: World) -> None:
        """Install the hooks for writes, deliveries and routing."""
        self.world = world
        world.network.on_write = self.on_write
        world.network.on_delivery = self.on_delivery
        world.network.route = self.route  # type: ignore[method-assign]  # all clients go to the first server

    def route(self, client: str) -> int:
        """Return the API server of a client."""
        return self.world.network.pins.get(client, 0)

    def on_write(self, client: str, request: Request, when: str) -> None:
        """Count a write BEFORE it is carried out."""
        who = _whose(client)
        if when == "before" and who and _counts(self.world, request):
            self.writes[who] += 1

    def on_delivery(self, stream: OpenStream, chunk: bytes) -> None:  # noqa: ARG002
        """Count a delivery BEFORE the client gets it."""
        who = _whose(stream.client)
        if who and not self.world.is_calm:
            self.deliveries[who].append(self.world.now_s)


class Disturber(Counting):
    """Carries out a plan."""

    def __init__(self, plan: SievePlan) -> None:
        super().__init__()
        self._plan = plan

    def __call__(self, world: World) -> None:
        """Stop the caches of the other server, if the plan is about stale states."""
        super().__call__(world)
        plan = self._plan
        if plan.pattern in (Pattern.STALE, Pattern.STALE_START):
            world.delays.append(CacheDelay(1, plan.since_s, UNTIL_S, STALE_S))

    def on_write(self, client: str, request: Request, when: str) -> None:
        """Kill the process that does the k-th write."""
        super().on_write(client, request, when)
        plan = self._plan
        wanted = {Pattern.BEFORE_WRITE: "before", Pattern.AFTER_WRITE: "after"}.get(plan.pattern)
        is_it = self.writes[plan.who] == plan.number + 1 and _whose(client) == plan.who
        if when == wanted and is_it and _counts(self.world, request) and not self.world.fired[FAULT]:
            self._kill(current_process())

    def on_delivery(self, stream: OpenStream, chunk: bytes) -> None:
        """Withhold the k-th delivery."""
        super().on_delivery(stream, chunk)
        plan, world = self._plan, self.world
        if _whose(stream.client) != plan.who or len(self.deliveries[plan.who]) != plan.number + 1:
            return
        if world.fired[FAULT] or plan.pattern in (Pattern.BEFORE_WRITE, Pattern.AFTER_WRITE):
            return
        client = stream.client
        if plan.pattern is Pattern.UNOBSERVED:
            world.network.disturb(FAULT, DisturbanceKind.REFUSE, AWAY_S, lambda who: who == client)
            world.servers[0].compact()
        else:
            world.network.pins[client] = 1
        if plan.pattern is Pattern.STALE_START:
            world.go(self._kill_later(current_process()), FAULT)
            return
        world.note_fault(FAULT, str(plan))
        stream.end(Ending.BROKEN)

    async def _kill_later(self, process: Process | None) -> None:
        """Kill a program after it has acted on a view that its successor will not see."""
        await self.world.clock.sleep(AWAY_S)
        self._kill(process)

    def _kill(self, process: Process | None) -> None:
        assert process is not None, "expected a program to write, or to be delivered to"
        self.world.note_fault(FAULT, str(self._plan))
        process.kill()


def plans(name: str) -> Iterator[SievePlan]:
    """Yield every plan of a situation.

    Raises:
        ViolationError: the situation fails undisturbed.
    """
    counting = Counting()
    outcome = SITUATIONS[name].run(prepare=counting)
    if outcome.violation is not None:
        raise outcome.violation
    for who in WHO:
        for number in range(counting.writes[who]):
            yield SievePlan(name, Pattern.BEFORE_WRITE, who, number)
            yield SievePlan(name, Pattern.AFTER_WRITE, who, number)
        times_s = counting.deliveries[who]
        for number, before_s in enumerate([0.0, *times_s[:-1]]):
            yield SievePlan(name, Pattern.UNOBSERVED, who, number)
            yield SievePlan(name, Pattern.STALE, who, number, before_s)
            yield SievePlan(name, Pattern.STALE_START, who, number, before_s)


def run_plan(plan: SievePlan, *, keeps: bool = False) -> Outcome:
    """Carry out one plan."""
    return SITUATIONS[plan.situation].run(keeps=keeps, prepare=Disturber(plan))


def _whose(client: str) -> str | None:
    return next((who for who in WHO if client.startswith(who)), None)


def _counts(world: World, request: Request) -> bool:
    """Return whether a plan may disturb this write; the Lease and Events are left alone."""
    return is_write(request) and not is_lease(request) and "/events" not in request.path and not world.is_calm
