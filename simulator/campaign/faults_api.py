"""Faults of API servers and of the network in front of them."""

from __future__ import annotations

from random import Random

from inplace.common.kube.http.request import Request, Response
from inplace.simulator.campaign.containers import agent_client
from inplace.simulator.campaign.disturbance import DisturbanceKind, is_write, refusal
from inplace.simulator.campaign.fault import FaultSite, fault, is_program, one_of
from inplace.simulator.campaign.network import Ending, OpenStream
from inplace.simulator.campaign.world import CacheDelay, World

API, NETWORK = FaultSite.API, FaultSite.NETWORK


def _watches(stream: OpenStream) -> bool:
    return is_program(stream.client)


@fault(
    "api-429",
    API,
    "answers 429 with Retry-After to a share of all requests for some seconds",
    code=429,
    reason="TooManyRequests",
)
@fault("api-503", API, "answers 503 with Retry-After for some seconds", code=503, reason="ServiceUnavailable")
@fault("api-500", API, "answers 500 to a share of all requests for some seconds", code=500, reason="InternalError")
async def _storm(world: World, rng: Random, name: str, code: int, reason: str) -> None:
    answer = refusal(code, reason, retry_after_s=None if code == 500 else rng.randint(1, 3))
    share, for_s, clients = rng.choice((0.3, 0.7, 1.0)), rng.uniform(0.5, 6.0), one_of(world, rng)
    struck = lambda client: clients(client) and rng.random() < share  # noqa: E731
    world.network.disturb(name, DisturbanceKind.ANSWER, for_s, struck, answer=answer)


@fault("api-504", API, "answers 504 to lists and watches: its cache is behind")
async def _api_504(world: World, rng: Random, name: str) -> None:
    late = refusal(504, "Timeout", retry_after_s=1)
    reads = lambda request: request.method == "GET"  # noqa: E731
    world.network.disturb(name, DisturbanceKind.ANSWER, rng.uniform(0.5, 6.0), is_program, reads, left=20, answer=late)


@fault("api-410-storm", API, "forgets its history and ends every watch with 410")
async def _gone(world: World, rng: Random, name: str) -> None:
    world.servers[0].compact()
    for _ in range(rng.randint(1, 4)):
        if world.is_calm:
            return
        if world.network.end_streams(Ending.GONE, _watches):
            world.note_fault(name, "every watch")
        await world.clock.sleep(rng.uniform(0.1, 2.0))


@fault("api-compaction", API, "forgets its history while a watch reconnects")
async def _compaction(world: World, rng: Random, name: str) -> None:
    ended = world.network.end_streams(Ending.BROKEN, _watches)
    await world.clock.sleep(rng.uniform(0.0, 0.2))
    if world.is_calm:
        return
    world.servers[0].compact()
    if ended:
        world.note_fault(name, f"{ended} watches resume from what is forgotten")


@fault("api-slow", API, "carries out a request up to eight seconds late")
async def _slow(world: World, rng: Random, name: str) -> None:
    for_s = rng.uniform(1.0, 8.0)
    world.network.disturb(name, DisturbanceKind.SLOW, for_s, one_of(world, rng), amount=rng.uniform(0.2, 8.0))


@fault(
    "api-slow-answer", API, "carries out a request and answers up to eight seconds later, so that watches are faster"
)
async def _slow_answer(world: World, rng: Random, name: str) -> None:
    for_s, amount = rng.uniform(1.0, 8.0), rng.uniform(0.2, 8.0)
    world.network.disturb(name, DisturbanceKind.SLOW_REPLY, for_s, one_of(world, rng), is_write, amount=amount)


@fault("api-restart", API, "one API server restarts: refuses connections, breaks its watches")
async def _restart(world: World, rng: Random, name: str) -> None:
    server = rng.randrange(len(world.servers))
    world.network.disturb(name, DisturbanceKind.REFUSE, rng.uniform(0.5, 8.0), is_program, server=server)
    how = rng.choice((Ending.BROKEN, Ending.CLEAN))
    if world.network.end_streams(how, lambda stream: stream.server == server):
        world.note_fault(name, f"server {server}")


@fault(
    "api-timeout-after-commit",
    API,
    "carries out a write, and does not answer",
    effect=DisturbanceKind.HANG_REPLY,
    most=2,
)
@fault(
    "api-timeout-before-commit",
    API,
    "does not carry out a write, and does not answer",
    effect=DisturbanceKind.LOSE,
    most=2,
)
@fault(
    "api-lost-reply",
    API,
    "carries out a write, and the connection breaks before the answer",
    effect=DisturbanceKind.LOSE_REPLY,
    most=3,
)
async def _lose(world: World, rng: Random, name: str, effect: DisturbanceKind, most: int) -> None:
    world.network.disturb(name, effect, 15.0, one_of(world, rng), is_write, left=rng.randint(1, most))


@fault("api-stale-cache", API, "the watch caches of one API server stop, or are seconds behind")
async def _stale_cache(world: World, rng: Random, name: str) -> None:
    server = rng.randrange(len(world.servers))
    _hold_back(world, rng, server)
    world.note_fault(name, f"server {server}")


@fault("api-time-travel", API, "programs move to an API server whose caches are behind, and see older objects")
async def _time_travel(world: World, rng: Random, name: str) -> None:
    server = rng.randrange(len(world.servers))
    _hold_back(world, rng, server)
    await world.clock.sleep(rng.uniform(0.2, 2.0))
    clients = one_of(world, rng)
    ended = world.network.end_streams(rng.choice((Ending.BROKEN, Ending.CLEAN)), lambda s: clients(s.client))
    for pod in world.pods:
        if clients(client := agent_client(pod)):
            world.network.pins[client] = server
    for client in world.controllers:
        if clients(client):
            world.network.pins[client] = server
    world.note_fault(name, f"{ended} watches go to server {server}")


def _hold_back(world: World, rng: Random, server: int) -> None:
    """Let a server's caches stand still and catch up in one leap, or trail by some seconds."""
    lag_s = rng.choice((None, rng.uniform(1.0, 6.0)))
    world.delays.append(CacheDelay(server, world.now_s, world.now_s + rng.uniform(1.0, 10.0), lag_s))


@fault("rights-missing", API, "answers 403 for a while", answer=refusal(403, "Forbidden"))
@fault("token-expired", API, "answers 401 for a while", answer=refusal(401, "Unauthorized"))
async def _refuse(world: World, rng: Random, name: str, answer: Response) -> None:
    world.network.disturb(name, DisturbanceKind.ANSWER, rng.uniform(0.5, 6.0), one_of(world, rng), answer=answer)


@fault("chunk-truncated", NETWORK, "a watch breaks inside a line", effect=DisturbanceKind.CUT_SHORT, most=2)
@fault("chunk-split", NETWORK, "a line of a watch arrives in two pieces", effect=DisturbanceKind.SPLIT, most=6)
@fault(
    "event-delayed", NETWORK, "a watch delivers events up to five seconds late", effect=DisturbanceKind.DELAY, most=3
)
@fault("event-duplicated", NETWORK, "a watch delivers an event twice", effect=DisturbanceKind.DUPLICATE, most=6)
async def _deliveries(world: World, rng: Random, name: str, effect: DisturbanceKind, most: int) -> None:
    amount = rng.uniform(0.1, 5.0) if effect is DisturbanceKind.DELAY else 0.0
    world.network.disturb(name, effect, 20.0, one_of(world, rng), left=rng.randint(1, most), amount=amount)


@fault("bookmark-missing", NETWORK, "watches deliver no bookmarks")
async def _no_bookmark(world: World, rng: Random, name: str) -> None:
    bookmarks = lambda request: "allowWatchBookmarks" in request.path  # noqa: E731
    world.network.disturb(name, DisturbanceKind.NO_BOOKMARK, 40.0, is_program, bookmarks, left=rng.randint(20, 60))


@fault("half-open", NETWORK, "watches stay open but deliver nothing", how=Ending.SILENT)
@fault("watch-reset", NETWORK, "watches break", how=Ending.BROKEN)
@fault("watch-closed", NETWORK, "watches end normally, as at the server's timeout", how=Ending.CLEAN)
async def _end(world: World, rng: Random, name: str, how: Ending) -> None:
    clients = one_of(world, rng)
    if ended := world.network.end_streams(how, lambda stream: clients(stream.client)):
        world.note_fault(name, f"{ended} watches")


@fault("partition-controller", NETWORK, "packets between controllers and all API servers are lost", kind="controller")
@fault("partition-agent", NETWORK, "packets between agents and all API servers are lost", kind="agent")
async def _partition(world: World, rng: Random, name: str, kind: str) -> None:
    clients = one_of(world, rng, kind)
    world.network.disturb(name, DisturbanceKind.LOSE, rng.uniform(1.0, 20.0), clients)
    if ended := world.network.end_streams(Ending.SILENT, lambda stream: clients(stream.client)):
        world.note_fault(name, f"{ended} watches")


@fault("partition-server", NETWORK, "one API server of several is cut off from agents and controllers")
async def _partition_server(world: World, rng: Random, name: str) -> None:
    server = rng.randrange(len(world.servers))
    world.network.disturb(name, DisturbanceKind.LOSE, rng.uniform(1.0, 10.0), is_program, server=server)
    world.network.end_streams(Ending.SILENT, lambda stream: stream.server == server and is_program(stream.client))


@fault("partition-kubelet", NETWORK, "a kubelet cannot write its Pods' status; its Pods run on")
async def _partition_kubelet(world: World, rng: Random, name: str) -> None:
    if world.kubelets:
        client = f"kubelet/{rng.choice(sorted(world.kubelets))}"
        world.network.disturb(name, DisturbanceKind.REFUSE, rng.uniform(1.0, 10.0), lambda who: who == client)


@fault("connection-refused", NETWORK, "connections are refused for a while")
async def _refused(world: World, rng: Random, name: str) -> None:
    world.network.disturb(name, DisturbanceKind.REFUSE, rng.uniform(0.2, 5.0), one_of(world, rng))


@fault("conflict", API, "another client's write makes the controller's next status write fail with a conflict")
async def _conflict(world: World, rng: Random, name: str) -> None:
    controllers, conflict = one_of(world, rng, "controller"), refusal(409, "Conflict")
    world.network.disturb(name, DisturbanceKind.ANSWER, 15.0, controllers, _is_status, left=4, answer=conflict)


def _is_status(request: Request) -> bool:
    return request.path.split("?")[0].endswith("/status")
