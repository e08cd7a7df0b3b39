"""An API server's answers to every command that reads a cluster, recorded once, and a transport that replays them."""

from __future__ import annotations

import asyncio
import io
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, redirect_stderr, redirect_stdout, suppress
from dataclasses import replace
from typing import Any, Final
from urllib.parse import parse_qs, urlsplit

from inplace.cli.connection import Connection
from inplace.cli.group.read import METADATA, PAGE, read_group, read_pods
from inplace.cli.lint.cluster import lint_cluster
from inplace.cli.logs.logs import LogOptions, run_logs
from inplace.cli.options import names_of
from inplace.cli.refusal import RefusalError
from inplace.cli.stacks.stacks import StacksOptions, run_stacks
from inplace.cli.status.explain import run_explain
from inplace.cli.status.history import run_history
from inplace.cli.status.report import run_report
from inplace.cli.status.restart import run_restart
from inplace.cli.status.status import run_status
from inplace.cli.status.timeline import run_timeline
from inplace.common.kube.client import KubeClient
from inplace.common.kube.http.request import Request, Response, Stream
from inplace.common.kube.resources import JOBSETS
from inplace.common.wire import names as wire
from inplace.simulator.apiserver import ApiServer, InMemoryTransport
from inplace.simulator.apiserver.memory import WholeStream
from inplace.simulator.cluster import virtual_time
from inplace.simulator.cluster.cluster import Cluster
from tests.cli.enriched import LOG, OTHERS
from tests.cli.injecting import documents_of
from tests.cli.scenes import crash, documents, jobset_of, status, synced, training, until
from tests.common.kube.answers import refusal

Run = Callable[[Connection], Awaitable[int | None]]
Key = tuple[str, str, bool, str]  # method, path without its query, whether it is a watch, and the media type
JSON: Final = {"content-type": "application/json"}
ASKED_MAX: Final = 40  # requests of one run; then all are refused, which ends a watch
PODS: Final = 3
RECORD_S_MAX: Final = 20.0  # of virtual time, for a command that watches
LOST_S: Final = 60.0  # behind the 40 s after which a node counts as lost


async def _linted(connection: Connection) -> None:
    manifests = documents_of("plain.yaml")
    await lint_cluster(connection.client, manifests, manifests[-1:], namespace="default")


async def _completed(connection: Connection) -> None:
    await names_of(connection, JOBSETS)


def _of(run: Any, *arguments: Any, **options: Any) -> Run:
    """Return a command's coroutine function, without what connects it."""
    return lambda connection: run.__wrapped__(connection, *arguments, **options)


COMMANDS: Final[Mapping[str, Run]] = {
    "status": _of(run_status, "train", output="table", watch=False),
    "status -o json": _of(run_status, "train", output="json", watch=False),
    "status of all": _of(run_status, None, output="table", watch=False, everywhere=True),
    "status of all -o yaml": _of(run_status, None, output="yaml", watch=False),
    "status --watch": _of(run_status, "train", output="table", watch=True),
    "status of all --watch": _of(run_status, None, output="table", watch=True),
    "explain": _of(run_explain, "train", output="table"),
    "explain -o json": _of(run_explain, "train", output="json"),
    "history": _of(run_history, "train", output="table"),
    "history -o json": _of(run_history, "train", output="json"),
    "timeline": _of(run_timeline, "train", output="table"),
    "timeline -o json": _of(run_timeline, "train", output="json"),
    "report": _of(run_report, selector=None, everywhere=True, price=2.0, output="table"),
    "report -o json": _of(run_report, selector=None, everywhere=False, price=None, output="json"),
    "logs": _of(run_logs, "train", LogOptions()),
    "logs --all --json": _of(run_logs, "train", LogOptions(everything=True, as_json=True)),
    "logs --first-failed": _of(run_logs, "train", LogOptions(first_failed=True)),
    "logs -f": _of(run_logs, "train", LogOptions(follow=True)),
    "stacks --last": _of(run_stacks, "train", StacksOptions(last=True)),
    "stacks": _of(run_stacks, "train", StacksOptions(timeout_s=2.0)),
    "restart --wait": _of(run_restart, "train", wait=True, timeout_s=5.0, save_s=30),
    "lint --cluster": _linted,
    "--install-completion": _completed,
}


class Recorder(InMemoryTransport):
    """A way to a cluster that keeps the answers."""

    def __init__(self, server: ApiServer) -> None:
        super().__init__(server)
        self.kept: dict[Key, Response] = {}

    async def request(self, request: Request, *, timeout_s: float) -> Response:
        """Send a request, and keep its answer."""
        answer = await super().request(request, timeout_s=timeout_s)
        self.kept[key_of(request)] = answer
        return answer

    @asynccontextmanager
    async def stream(self, request: Request, *, timeout_s: float) -> AsyncIterator[Stream]:
        """Open a streaming answer, and keep what came of it."""
        async with super().stream(request, timeout_s=timeout_s) as stream:
            yield _Kept(stream, self.kept, key_of(request))


class _Kept:
    def __init__(self, stream: Stream, kept: dict[Key, Response], key: Key) -> None:
        self._stream, self._kept, self._key = stream, kept, key
        self.status, self.headers = stream.status, stream.headers

    async def chunks(self) -> AsyncIterator[bytes]:
        body = b""
        async for chunk in self._stream.chunks():
            body += chunk
            self._kept[self._key] = Response(self.status, self.headers, body)
            yield chunk


def key_of(request: Request) -> Key:
    """Return what tells an answer from others."""
    parts = urlsplit(request.path)
    return request.method, parts.path, "watch" in parse_qs(parts.query), request.headers.get("accept", "")


World = dict[Key, Response]
Change = Callable[[int, Request, Response], Response]  # of the answer with a number, counted from 1


async def _answers(cluster: Cluster) -> World:
    """Return the answers to all commands as a cluster is now."""
    recorder = Recorder(cluster.server)
    connection = Connection(KubeClient(recorder, user_agent="user", field_manager="user"), "default")
    await read_group(replace(connection, whole_max=0), "train")
    await read_pods(connection, "train", METADATA, PAGE)
    for run in COMMANDS.values():
        with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()), suppress(RefusalError, TimeoutError):
            async with asyncio.timeout(RECORD_S_MAX):
                await run(connection)
    others = {("GET", path, False, "application/json"): Response(200, JSON, body) for path, body in OTHERS.items()}
    logs = {key: Response(200, {}, LOG) for key in recorder.kept if key[1].endswith("/log")}
    return recorder.kept | others | logs


async def record() -> list[World]:
    """Return the answers about a group: it trains after a restart, waits for a lost node, is suspended, and fails."""
    worlds = []
    group = documents(PODS)
    jobset_of(group)["spec"]["failurePolicy"]["maxRestarts"] = 2
    async with training(PODS, group=group) as cluster:
        crash(cluster)
        await synced(cluster, 2, PODS)
        worlds.append(await _answers(cluster))
        cluster.lose_node(str(cluster.pods()[0]["spec"]["nodeName"]))
        await cluster.clock.sleep(LOST_S)
        worlds.append(await _answers(cluster))
        suspended = {"metadata": {"labels": {wire.QUEUE_NAME: "team"}}, "spec": {"suspend": True}}
        await cluster.client().patch(JOBSETS, "default", "train", suspended)
        await until(cluster, lambda: len(cluster.pods()) < PODS)
        worlds.append(await _answers(cluster))
    async with training(PODS, group=group, maxRestarts=0) as cluster:
        crash(cluster)
        await until(cluster, lambda: bool(status(cluster).get("terminalState")))
        worlds.append(await _answers(cluster))
    return worlds


class Replay:
    """A transport that answers as a recorded server did, but for what a case changes."""

    def __init__(self, world: World, change: Change) -> None:
        self._world = world
        self._change = change
        self._asked = 0

    async def request(self, request: Request, *, timeout_s: float) -> Response:
        """Answer."""
        await asyncio.sleep(0.01)
        self._asked += 1
        if self._asked > ASKED_MAX:
            return refusal(403, "Forbidden")
        return self._change(self._asked, request, self._world.get(key_of(request)) or refusal(404, "NotFound"))

    @asynccontextmanager
    async def stream(self, request: Request, *, timeout_s: float) -> AsyncIterator[Stream]:
        """Answer with a stream that ends."""
        yield WholeStream(await self.request(request, timeout_s=timeout_s))

    async def close(self) -> None:
        """Do nothing."""


def recorded() -> list[World]:
    """Return the recorded answers."""
    return virtual_time.run(record())
