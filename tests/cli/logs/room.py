"""A JobSet, its Pods and their logs as an API server and kubelets tell them, under virtual time."""

from __future__ import annotations

import asyncio
import io
import re
from collections.abc import AsyncIterator, Awaitable, Iterator
from contextlib import asynccontextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass, field
from random import Random
from typing import Any

from inplace.agent.report.log_line import log_line
from inplace.cli.connection import Connection
from inplace.cli.logs.logs import LogOptions, print_logs
from inplace.cli.terminal.visible import guard_streams
from inplace.common.kube.client import KubeClient
from inplace.common.kube.clock import LoopClock
from inplace.common.kube.http.request import Request, Response, Stream
from inplace.common.kube.resources import JOBSETS, PODS, KubeObject
from inplace.common.wire import names as wire
from inplace.simulator.apiserver import ApiServer, ApiServerOptions, InMemoryTransport
from inplace.simulator.apiserver.options import LogRequest
from inplace.simulator.cluster.container_log import LogPiece
from inplace.simulator.cluster.logs import read_log
from inplace.simulator.cluster.manifests import custom_resource_definitions
from tests.cli.facts import jobset
from tests.common.kube.answers import refusal

START_S = 1_767_225_600.0  # 2026-01-01T00:00:00Z
GUARDED = ["/inplace/bin/guard", "--", "python", "train.py"]
_PREFIX = re.compile(r"^\d\d-\d\d \d\d:\d\d:\d\d\.\d{3} rank +\d+ \S+  ")
BARE = ["python", "train.py"]


def at(second: float) -> str:
    """Return a moment of the day as the status has it, in whole seconds."""
    return f"2026-01-01T00:{int(second) // 60:02d}:{int(second) % 60:02d}Z"


@dataclass(slots=True)
class Printed:
    """What the command printed."""

    code: int
    out: str
    err: str

    @property
    def texts(self) -> list[str]:
        """Return the lines without time, rank and Pod."""
        return [_PREFIX.sub("", line) for line in self.out.splitlines()]


async def printed(command: Awaitable[int], err: io.StringIO | None = None) -> Printed:
    """Run a command; return what it printed, on a pipe or what `err` is."""
    out, err = io.StringIO(), err or io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        guard_streams()
        code = await command
    return Printed(code, out.getvalue(), err.getvalue())


@dataclass
class Kept:
    """The log of one container instance."""

    pieces_kept: list[LogPiece] = field(default_factory=list)
    is_over: bool = False


@dataclass
class Reading:
    """One reader of it, see `OpenLog`."""

    log: Kept
    read: int = 0

    def pieces(self) -> Iterator[LogPiece]:
        """Yield what came since the last call."""
        read, self.read = self.read, len(self.log.pieces_kept)
        return iter(self.log.pieces_kept[read:])

    @property
    def is_over(self) -> bool:
        """Say whether no more will come."""
        return self.log.is_over

    def close(self) -> None:
        """Do nothing."""


@dataclass
class Room:
    """The cluster.

    Attributes:
        hangs: names of Pods whose kubelet never answers.
        refuses: names of Pods whose log is refused, with the answer.
        refuses_patch: the answer to each change of a JobSet; None accepts it.
        most_open: how many logs were read at once.
        requests: for logs.
        streams: of logs, that are open.
    """

    server: ApiServer
    client: KubeClient
    hangs: set[str] = field(default_factory=set)
    refuses: dict[str, Response] = field(default_factory=dict)
    refuses_patch: Response | None = None
    most_open: int = 0
    requests: int = 0
    streams: int = 0
    logs: dict[tuple[str, bool], Kept] = field(default_factory=dict)

    @property
    def connection(self) -> Connection:
        """Return the command's connection."""
        return Connection(self.client, "default")

    async def group(self, pods: int, status: KubeObject | None = None) -> None:
        """Create the JobSet."""
        raw = jobset(pods) | {"metadata": {"name": "train"}}
        del raw["status"]
        await self.client.create(JOBSETS, "default", raw)
        await self.client.patch(JOBSETS, "default", "train", {"status": status or {}}, subresource="status")

    async def pod(
        self,
        index: int,
        *,
        command: list[str] | None = None,
        agent: bool = False,
        epoch: int = 1,
        began: float = 0,
        restarts: int = 0,
        last: KubeObject | None = None,
        ended: KubeObject | None = None,
        name: str = "",
    ) -> str:
        """Create the Pod of a slot, or change its status; return its name. Its `agent` says what NAME/agent says."""
        name = name or f"train-big-job-0-{index}"
        labels = {
            wire.JOBSET_NAME: "train",
            wire.REPLICATED_JOB_NAME: "big-job",
            wire.JOB_INDEX: "0",
            wire.JOB_COMPLETION_INDEX: str(index),
        }
        meta = {"name": name, "labels": labels, "annotations": wire.epoch_annotations(epoch)}
        container = {"name": "worker", "image": "i", "command": command or GUARDED}
        state = {"terminated": ended} if ended else {"running": {"startedAt": at(began)}}
        status = {
            "phase": "Running",
            "containerStatuses": [
                {"name": "worker", "image": "i", "imageID": "", "ready": True, "restartCount": restarts, "state": state}
                | ({"lastState": {"terminated": last}} if last else {})
            ],
        }
        if agent:
            sidecar = {"name": "agent", "image": "i", "imageID": "", "ready": True, "restartCount": 0}
            status["initContainerStatuses"] = [sidecar | {"state": {"running": {"startedAt": at(began)}}}]
        if self.server.store.get(("", "pods"), "default", name) is None:
            spec: KubeObject = {"nodeName": "n", "containers": [container]}
            if agent:
                spec["initContainers"] = [{"name": "agent", "image": "i", "command": ["inplace-agent"]}]
            await self.client.create(PODS, "default", {"metadata": meta, "spec": spec})
        await self.client.patch(PODS, "default", name, {"metadata": meta})
        await self.client.patch(PODS, "default", name, {"status": status}, subresource="status")
        return name

    def say(self, pod: str, second: float, *texts: str | bytes, previous: bool = False) -> None:
        """Let a Pod's worker print lines at a second of the day."""
        log = self.logs.setdefault((pod, previous), Kept())
        for text in texts:
            line = text if isinstance(text, bytes) else text.encode()
            log.pieces_kept.append(LogPiece(round((START_S + second) * 1_000_000) * 1_000, line + b"\n", begins=True))

    def mark(self, pod: str, second: float, event: str, previous: bool = False, **fields: int) -> None:
        """Let a Pod's guard write a line."""
        self.say(pod, second, log_line(START_S + second, "info", event, fields), previous=previous)

    def restart(self, pod: str) -> None:
        """Make the present log of a Pod the previous one."""
        log = self.logs.pop((pod, False))
        log.is_over = True
        self.logs[pod, True] = log

    def end(self, pod: str) -> None:
        """Let a Pod's container end."""
        self.logs.setdefault((pod, False), Kept()).is_over = True

    async def run(self, *, err: io.StringIO | None = None, **options: Any) -> Printed:
        """Run the command; return what it printed, on a pipe or what `err` is."""
        command = print_logs(self.connection, "train", LogOptions(**options), now_s=self._clock().wall_s())
        return await printed(command, err)

    def _clock(self) -> LoopClock:
        return LoopClock(START_S)

    async def answer(self, pod: KubeObject, request: LogRequest) -> AsyncIterator[bytes]:
        """Answer pods/log as a kubelet."""
        name = pod["metadata"]["name"]
        self.requests += 1
        if name in self.hangs:
            await asyncio.Event().wait()
        of = name if request.container == "worker" else f"{name}/{request.container}"
        log = self.logs.get((of, request.previous))
        if log is None:
            yield b"unable to retrieve container logs for containerd://0"
            return
        async for chunk in read_log(Reading(log), request, self._clock()):
            await asyncio.sleep(0.001)
            yield chunk


class _Refusing(InMemoryTransport):
    """Refuses the logs of some Pods, and counts the streams of others."""

    room: Room

    @asynccontextmanager
    async def stream(self, request: Request, *, timeout_s: float) -> AsyncIterator[Stream]:
        """Open a streaming answer."""
        self.room.streams += "/log?" in request.path
        self.room.most_open = max(self.room.most_open, self.room.streams)
        try:
            async with super().stream(request, timeout_s=timeout_s) as stream:
                yield stream
        finally:
            self.room.streams -= "/log?" in request.path

    async def _send(self, request: Request) -> Any:
        for name, answer in self.room.refuses.items():
            if f"/{name}/log" in request.path:
                return answer
        if request.method == "PATCH" and self.room.refuses_patch is not None and "/jobsets/" in request.path:
            return self.room.refuses_patch
        return await super()._send(request)


async def room() -> Room:
    """Return an empty cluster."""
    made: list[Room] = []

    async def source(pod: KubeObject, request: LogRequest) -> AsyncIterator[bytes]:
        async for chunk in made[0].answer(pod, request):
            yield chunk

    clock = LoopClock(START_S)
    server = ApiServer(clock=clock, rng=Random(1), options=ApiServerOptions(log_source=source))
    transport = _Refusing(server)
    transport.room = Room(server, KubeClient(transport, user_agent="user", field_manager="user"))
    made.append(transport.room)
    for crd in custom_resource_definitions():
        await transport.room.client.raw("POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", body=crd)
    return transport.room


FORBIDDEN = refusal(403, "Forbidden")
GONE = refusal(404, "NotFound")
UNREACHABLE = refusal(502, "BadGateway")
