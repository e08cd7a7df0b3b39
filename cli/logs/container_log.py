"""
Find the container instances whose logs kubelet may have; read the log of one, and go on where the last reading ended.

Kubelet keeps the log of a container's present instance and of the one before. Regular containers count; a sidecar agent
prints nothing of a worker.

Kubelet takes the moment to begin at in whole seconds, so a reader counts the lines that it has had of that second, and
leaves them out. Kubelet reads only the newest file of a log. Lines of older files are lost.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Collection, Iterable, Iterator, Mapping
from contextlib import AsyncExitStack, aclosing
from datetime import UTC, datetime
from typing import Final

from inplace.cli.connection import Connection
from inplace.cli.group.pod_facts import Container, PodFact, Running, Terminated
from inplace.cli.logs.lines import NS, LogCutter, LogLine, Tail, is_tail
from inplace.common.agent_command import agent_arguments
from inplace.common.bare.record import record
from inplace.common.jobset.causes import unix_time
from inplace.common.jobset.jobset import parse_jobset
from inplace.common.kube.errors import ApiError, BadRequest, check_answer
from inplace.common.kube.http.request import Request, Response, Stream, TransportError, TransportTimeoutError
from inplace.common.kube.resources import PODS, KubeObject
from inplace.common.protocol.errors import RemoteProtocolError

Ranks = Callable[[PodFact], int | None]


@record
class Instance:
    """One run of one container.

    Args:
        rank: of its Pod; None where its labels do not say.
        container: its name.
        is_alone: its Pod has no other container that counts.
        number: how often the container was restarted before.
        is_previous: kubelet calls it the previous one.
        has_marks: a guard writes marks into its log.
        agent: the container of its guard's agent; "" if the agent is none of its own.
        epoch: at its beginning, where it has no marks, and of all that no mark says, where the present one has lost
            them.
        began_s, ended_s: Unix time, whole seconds, by its node's clock; None if not known or not over.
    """

    uid: str
    pod: str
    rank: int | None
    container: str
    is_alone: bool
    number: int
    is_previous: bool
    has_marks: bool
    agent: str
    epoch: int | None
    began_s: float | None
    ended_s: float | None

    @property
    def key(self) -> tuple[str, str, int]:
        """Return what no other instance has."""
        return self.uid, self.container, self.number

    @property
    def name(self) -> str:
        """Return the Pod's name, with the container's where the Pod has several."""
        return self.pod if self.is_alone else f"{self.pod}/{self.container}"


def ranks_of(raw: KubeObject) -> tuple[Ranks, int]:
    """Return how each Pod gets its rank, and how many there are; 0 where the spec cannot be read.

    A Pod's rank is its place among the Pods of the JobSet, in the spec's order. In a group with spares it is the one
    that it plays in the newest epoch; a spare has none.
    """
    try:
        jobset = parse_jobset(raw)
        scopes = jobset.scopes
    except RemoteProtocolError:
        return (lambda _: None), 0
    sizes = {job.name: job.parallelism for job in jobset.replicated_jobs}
    members = {
        name: (ranks, {unit: rank for rank, unit in enumerate(ranks.slots())})
        for name, scope in scopes.items()
        if scope.has_spares and (ranks := scope.ranks) is not None
    }

    def rank(pod: PodFact) -> int | None:
        slot = pod.slot
        if slot is None or slot.replicated_job not in sizes:
            return None
        first = jobset.numbers.first_slot[slot.replicated_job]
        if (known := members.get(slot.replicated_job)) is not None:  # this replicatedJob is the scope
            ranks, played = known
            unit = played.get(ranks.unit_of(slot.job_index, slot.completion_index))
            return unit if unit is None or not ranks.pods else unit * ranks.pods + slot.completion_index
        return first + slot.job_index * sizes[slot.replicated_job] + slot.completion_index

    return rank, jobset.shape.size


def has_spares(raw: KubeObject) -> bool:
    """Say whether some Pods of a JobSet may have no rank: spares."""
    try:
        return any(scope.has_spares for scope in parse_jobset(raw).scopes.values())
    except RemoteProtocolError:
        return False


def instances_of(pods: Iterable[PodFact], rank: Ranks, chosen: Collection[range] = ()) -> list[Instance]:
    """Return the instances of Pods, those of the lowest ranks first.

    Args:
        pods: whole, as the API server has them.
        rank: gives a Pod its rank.
        chosen: ranks; empty is all.
    """
    found = [(rank(pod), pod) for pod in pods]
    if chosen:
        found = [(number, pod) for number, pod in found if number is not None and any(number in one for one in chosen)]
    found.sort(key=lambda one: (one[0] is None, one[0] or 0, one[1].name))
    return [instance for number, pod in found for instance in _of_pod(pod, number)]


def _of_pod(pod: PodFact, rank: int | None) -> Iterator[Instance]:
    for container in pod.workers:
        if (last := container.last_state.terminated) is not None:
            yield _instance(pod, rank, container, last, previous=True)
        if (present := container.state.running or container.state.terminated) is not None:
            yield _instance(pod, rank, container, present)


def _instance(
    pod: PodFact, rank: int | None, container: Container, run: Running | Terminated, *, previous: bool = False
) -> Instance:
    words = next(
        ((*(one.command or ()), *(one.args or ())) for one in pod.spec.containers or () if one.name == container.name),
        (),
    )
    # Without a guard each instance has an epoch of its own: kubelet starts a worker after the lift.
    epoch = pod.epoch - 1 if previous else pod.epoch
    return Instance(
        pod.metadata.uid,
        pod.name,
        rank,
        container.name,
        len(pod.workers) == 1,
        container.restart_count - (1 if previous else 0),
        previous,
        agent_arguments(words) is not None,
        next((one.name for one in pod.spec.init_containers or () if agent_arguments(one.command or ()) == []), ""),
        epoch if epoch > 0 else None,
        unix_time(run.started_at),
        unix_time(run.finished_at) if isinstance(run, Terminated) else None,
    )


SILENCE_S_MAX: Final = 10.0  # for headers and between two chunks; a kubelet that hangs costs its Pods so long
REFUSAL_BYTES_MAX: Final = 65_536


class UnreadableError(Exception):
    """Kubelet has no such log; the text has its words."""


class ContainerLog:
    """The log of one instance.

    Args:
        connection: to the cluster.
        instance: whose log.
        since_ns: older lines are left out, Unix time.
    """

    def __init__(self, connection: Connection, instance: Instance, since_ns: int = 0) -> None:
        self.instance = instance
        self.is_previous = instance.is_previous  # changes when another instance has followed it
        self.epoch = None if instance.has_marks else instance.epoch
        self.lifts: Mapping[int, int] = {}  # as `LogCutter` has it
        self.tails: list[Tail] = []  # of runs whose lines may be lost, the oldest first
        self.has_tails = False  # its container has some, of this instance or another
        self.is_lost = False  # kubelet has removed it
        self._due: deque[LogLine] = deque()  # of those tails
        self._last_ns = 0  # of the log's own lines
        self.hides_tails = instance.has_marks and not instance.agent  # a supervisor's, which are in its worker's log
        self._connection = connection
        self._since_ns = since_ns
        self._second = since_ns // NS  # lines before it are done
        self._had = 0  # lines of that second that are done
        self._left = 0  # of them, still to come again in this answer

    def again(self) -> ContainerLog:
        """Return the log from its beginning, with no epoch known."""
        again = ContainerLog(self._connection, self.instance, self._since_ns)
        again.epoch, again.lifts = None, self.lifts
        return again

    async def lines(self, *, follow: bool = False) -> AsyncGenerator[LogLine, None]:
        """Yield the lines behind those that were read before; with `follow`, until the container ends.

        The tail of a run comes where the log has no line of that run: kubelet has removed or cut it.

        Close the iterator (`contextlib.aclosing`) when you leave early: it holds a connection.

        Raises:
            UnreadableError: kubelet has lost the log.
            ApiError, TransportError: there is no answer.
        """
        problem: Exception | None = None
        try:
            async with aclosing(self._own_lines(follow=follow)) as own:
                async for line in own:
                    self._make_due(line.at_ns)
                    while self._due:
                        yield self._due.popleft()
                    yield line
        except (ApiError, TransportError, UnreadableError) as error:
            problem, self.is_lost = error, isinstance(error, BadRequest) and self.is_previous
        self._make_due(None)
        while self._due:
            yield self._due.popleft()
        if problem is not None:
            raise problem

    def _make_due(self, before_ns: int | None) -> None:
        """Take the tails of runs that ended before a moment, if none of the log's lines so far is of such a run."""
        while self.tails and (before_ns is None or self.tails[0].ended_ns < before_ns):
            tail = self.tails.pop(0)
            if self._last_ns < tail.began_ns and tail.ended_ns >= self._since_ns:
                self._due.extend(tail.lines())
        self._last_ns = before_ns or self._last_ns

    async def _own_lines(self, *, follow: bool) -> AsyncGenerator[LogLine, None]:
        """Yield the lines that kubelet has."""
        self._left = self._had
        cutter = LogCutter(self.epoch, self.lifts)
        request = Request("GET", self._path(follow=follow), self._connection.client.headers | {"accept": "*/*"})
        async with AsyncExitStack() as stack:
            stream = await stack.enter_async_context(
                self._connection.client.transport.stream(request, timeout_s=SILENCE_S_MAX)
            )
            chunks = stream.chunks()
            await self._check(stream, chunks)
            while (chunk := await self._next(chunks, follow=follow)) is not None:
                for line in cutter.feed(chunk):
                    if self._is_new(line, cutter):
                        yield line
            for line in cutter.end():
                if self._is_new(line, cutter):
                    yield line
        if cutter.words:
            raise UnreadableError(cutter.words.decode("utf-8", "replace"))

    def _is_new(self, line: LogLine, cutter: LogCutter) -> bool:
        """Note a line; say whether it was not read before and is asked for."""
        second = line.at_ns // NS
        if second == self._second and self._left:
            self._left -= 1
            return False
        if second > self._second:
            self._second, self._had, self._left = second, 0, 0
        if second == self._second:
            self._had += 1
        self.epoch = cutter.epoch
        if self.hides_tails and is_tail(line.text):
            return False
        return line.at_ns >= self._since_ns

    def _path(self, *, follow: bool) -> str:
        query = {"container": self.instance.container, "timestamps": "true"}
        if self.is_previous:
            query["previous"] = "true"
        if follow:
            query["follow"] = "true"
        if self._second:
            query["sinceTime"] = datetime.fromtimestamp(self._second, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        return PODS.path(self._connection.namespace, self.instance.pod, subresource="log", query=query)

    async def _check(self, stream: Stream, chunks: AsyncIterator[bytes]) -> None:
        """Raise what a refusal says."""
        if stream.status < 300:
            return
        body = bytearray()
        while len(body) < REFUSAL_BYTES_MAX and (chunk := await self._next(chunks)) is not None:
            body += chunk
        check_answer(Response(stream.status, stream.headers, bytes(body[:REFUSAL_BYTES_MAX])), expects_json=False)

    async def _next(self, chunks: AsyncIterator[bytes], *, follow: bool = False) -> bytes | None:
        """Return the next chunk, None at the end."""
        try:
            async with asyncio.timeout(None if follow else SILENCE_S_MAX):
                return await anext(chunks, None)
        except TimeoutError as error:
            raise TransportTimeoutError(f"its kubelet sent nothing for {SILENCE_S_MAX:g} s") from error
