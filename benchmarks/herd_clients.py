"""
One process of the herd benchmark: many agents as coroutines, each with its own connections, released at one instant.

It reads one JSON line (a `Task`), prepares, prints "ready", reads the monotonic second at which to begin, and prints
one JSON line with the results. Agents get no processes of their own: the benchmark would then measure a thousand
interpreters on the server's cores.
"""

from __future__ import annotations

import asyncio
import json
import resource
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass, field
from random import Random

from benchmarks.obvious_client import follow_for_ever
from inplace.agent.barrier.http import Barrier
from inplace.agent.deps import AgentDeps
from inplace.agent.link.server import GuardServer
from inplace.agent.settings.config import AgentConfig
from inplace.agent.settings.herd import Herd
from inplace.agent.start.sidecar import agent_of
from inplace.common.kube.clock import LoopClock
from inplace.common.kube.http.http1 import Http1Transport
from inplace.common.kube.http.request import Request, Response, Stream
from inplace.common.kube.kubeconfig import read_kubeconfig
from inplace.simulator.cluster.model_agent import QuietLog

READY_S_MAX = 120.0  # for all agents of one round to be announced and watching; a round beyond is an error
CLOSE_S_MAX = 30.0
TOO_MANY_REQUESTS = 429


_Answered = Callable[[str, int], None]  # verb, status
_Runs = Callable[[asyncio.Event], Coroutine[None, None, None]]


@dataclass(frozen=True, slots=True)
class Task:
    """What one process does in one round.

    Args:
        obvious: run agents that do the obvious instead of ours.
        first, count: the numbers of its Pods among `agents`.
        slots: give each its slot; no slot means that all begin at once.
        concurrency: how many may start at a time; 0 is no limit.
        synced: the group's S.
    """

    obvious: bool
    first: int
    count: int
    agents: int
    slots: bool
    concurrency: int
    synced: int
    kubeconfig: str
    namespace: str
    jobset: str


@dataclass(slots=True)
class Tally:
    """What one process saw.

    Args:
        done_s: for each agent, from the start of the round to its announcement accepted and its watch open.
        rejected: 429 answers.
        requests: sent.
        failures: other failures, by name.
        cpu_s: of this process, from the start of the round to the last agent.
    """

    done_s: list[float] = field(default_factory=list)
    rejected: int = 0
    requests: int = 0
    failures: Counter[str] = field(default_factory=Counter)
    cpu_s: float = 0.0


def pod_name(index: int) -> str:
    """Return the name of Pod `index`, as an Indexed Job would begin it."""
    return f"train-workers-0-{index}"


class _Transport:
    """The agent's transport; it reports each answer's status."""

    def __init__(self, inner: Http1Transport, on_answer: _Answered) -> None:
        self._inner = inner
        self._on_answer = on_answer

    async def request(self, request: Request, *, timeout_s: float) -> Response:
        response = await self._inner.request(request, timeout_s=timeout_s)
        self._on_answer(request.method.lower(), response.status)
        return response

    @asynccontextmanager
    async def stream(self, request: Request, *, timeout_s: float) -> AsyncIterator[Stream]:
        async with self._inner.stream(request, timeout_s=timeout_s) as stream:
            self._on_answer("watch", stream.status)
            yield stream

    async def close(self) -> None:
        await self._inner.close()


class _Agents:
    """All agents of this process."""

    def __init__(self, task: Task) -> None:
        self._task = task
        self._tally = Tally()
        self._go = asyncio.Event()
        self._began_s = 0.0
        self._turns = asyncio.Semaphore(task.concurrency or task.count)
        self._all_ready = asyncio.Event()
        self._closers: list[Callable[[], Awaitable[None]]] = []

    async def run(self) -> Tally:
        """Prepare all agents, release them on command, and follow them until all are ready."""
        prepare = self._obvious if self._task.obvious else self._ours
        async with asyncio.TaskGroup() as group:
            running = [group.create_task(self._in_turn(prepare(self._task.first + i))) for i in range(self._task.count)]
            print("ready", flush=True)
            self._began_s = float(await asyncio.to_thread(sys.stdin.readline))
            await asyncio.sleep(self._began_s - time.monotonic())
            cpu_s = time.process_time()
            self._go.set()
            try:
                async with asyncio.timeout(READY_S_MAX):
                    await self._all_ready.wait()
            except TimeoutError:
                self._tally.failures["not ready in time"] = self._task.count - len(self._tally.done_s)
            self._tally.cpu_s = time.process_time() - cpu_s
            for agent in running:
                agent.cancel()
        async with asyncio.timeout(CLOSE_S_MAX):
            for close in self._closers:
                await close()
        return self._tally

    async def _in_turn(self, agent: _Runs) -> None:
        """Run one agent for ever from the moment it may start; its turn ends when it is ready."""
        ready = asyncio.Event()
        await self._go.wait()
        async with asyncio.TaskGroup() as group:
            async with self._turns:
                group.create_task(agent(ready))
                await ready.wait()
            self._tally.done_s.append(time.monotonic() - self._began_s)
            if len(self._tally.done_s) == self._task.count:
                self._all_ready.set()

    def _ours(self, index: int) -> _Runs:
        """Prepare one real agent."""
        task, herd = self._task, Herd(self._task.agents, index, Random(index).random())
        config = AgentConfig(
            task.namespace,
            pod_name(index),
            task.jobset,
            previous_epoch=task.synced,
            start_slot_s=herd.start_slot_s if task.slots else 0.0,
            herd=herd,
        )
        inner = self._transport()

        async def run(ready: asyncio.Event) -> None:
            transport = _Transport(inner, self._counter(ready))
            deps = AgentDeps(
                transport=transport, clock=LoopClock(), rng=Random(index), barrier=Barrier(), log=QuietLog()
            )
            agent = agent_of(config, deps, GuardServer())
            code = await agent.run()
            raise RuntimeError(f"expected agent {index} to wait at its barrier, saw it exit with {code}")

        return run

    def _obvious(self, index: int) -> _Runs:
        """Prepare one agent that does the obvious."""
        task, first = self._task, [self._transport()]

        async def run(ready: asyncio.Event) -> None:
            answered = self._counter(ready)

            def connect() -> _Transport:
                return _Transport(first.pop() if first else self._transport(), answered)

            await follow_for_ever(connect, LoopClock(), task.namespace, task.jobset, pod_name(index))

        return run

    def _transport(self) -> Http1Transport:
        """Return a transport of its own for one process of one Pod; its TLS settings are loaded now."""
        transport = Http1Transport(read_kubeconfig(self._task.kubeconfig))
        self._closers.append(transport.close)
        return transport

    def _counter(self, ready: asyncio.Event) -> _Answered:
        """Return a function that counts one agent's answers, and notices its announcement and its watch."""
        taken: set[str] = set()

        def answered(verb: str, status: int) -> None:
            self._tally.requests += 1
            if status == TOO_MANY_REQUESTS:
                self._tally.rejected += 1
            elif status >= 400:
                self._tally.failures[str(status)] += 1
            else:
                taken.add(verb)
                if {"patch", "watch"} <= taken:
                    ready.set()

        return answered


def raise_file_limit(wanted: int) -> None:
    """Let this process open `wanted` files.

    Raises:
        SystemExit: the machine's hard limit is lower; says how to raise it.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < wanted:
        raise SystemExit(
            f"expected a limit of at least {wanted} open files, saw {hard}; nothing was started. Raise it "
            f"(`ulimit -Hn {wanted}` as root, LimitNOFILE= in a unit) or ask for fewer --agents."
        )
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def main() -> None:
    """Run one round's share."""
    task = Task(**json.loads(sys.stdin.readline()))
    raise_file_limit(3 * task.count + 100)
    print(json.dumps(asdict(asyncio.run(_Agents(task).run()))), flush=True)


if __name__ == "__main__":
    main()
