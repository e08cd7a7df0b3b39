"""
The controller as one object: no globals, no threads; its clock, randomness and transport are arguments.

One term is one leadership: caches, ledgers and queue are built anew after the Lease was acquired. So they are never
older than the leadership, and nothing of an earlier term gets into a later one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from random import Random

import structlog
from anyio import create_task_group
from tenacity import AsyncRetrying, retry_if_exception_type, retry_if_not_exception_type, wait_fixed

from inplace.common.injection.restart_rules import version_of
from inplace.common.kube.client import KubeClient
from inplace.common.kube.clock import Clock, LoopClock
from inplace.common.kube.errors import ApiError, Forbidden, NotFound
from inplace.common.kube.http.request import Transport, TransportError
from inplace.common.kube.informer import Log
from inplace.common.wire import names as wire
from inplace.controller.api.leader import Elector, LeaderOnlyTransport, LeadershipLostError
from inplace.controller.api.pace import PacedTransport
from inplace.controller.api.transport import MeteredTransport
from inplace.controller.config import ControllerConfig
from inplace.controller.metrics import Metrics
from inplace.controller.preflight import Preflight
from inplace.controller.serving.pages import Page, PageServer, probes
from inplace.controller.serving.scrapes import Scrapes
from inplace.controller.term import Term

USER_AGENT = "inplace-controller/0.1.0"
PAUSES_EVERY_S = 0.1  # ten wake-ups a second; fifty took an eighth of the CPU of a restart of 5,000 Pods
VERSION_AGAIN_S = 1.0  # one request a second to a server that is away
_NO = (Forbidden, NotFound)
DRAIN_S = 8.0  # for what is in work at shutdown; within the lease, and within kubelet's 30 s grace


class Controller:
    """Runs terms until it is stopped.

    Args:
        transport: to the API server; the caller closes it.
        clock: None is the running loop's.
        rng: None seeds itself.
        log: None is structlog's.
    """

    def __init__(
        self,
        transport: Transport,
        *,
        clock: Clock | None = None,
        rng: Random | None = None,
        config: ControllerConfig | None = None,
        log: Log | None = None,
    ) -> None:
        self.config = config or ControllerConfig()
        self.metrics = Metrics()
        self._clock = clock or LoopClock()
        self._rng = rng or Random()
        self._log = log or structlog.get_logger("controller")
        self._transport = MeteredTransport(transport, self.metrics)
        self._stop = asyncio.Event()
        self._term: Term | None = None
        unfenced = self._client(self._transport)
        lease = (self.config.identity, self.config.lease_namespace, self.config.lease_name)
        elector = Elector(unfenced, *lease, clock=self._clock, rng=self._rng, log=self._log)
        self._elector = elector if self.config.leader_elect else None
        self._preflight = Preflight(unfenced, self.config, clock=self._clock, log=self._log)
        self.scrapes = Scrapes(self.metrics.pieces, self._clock)
        self.probe_port = self._serve(self.config.probe_address, probes(self._why_not_ready))
        self.metrics_port = self._serve(self.config.metrics_address, self.scrapes.pages())

    @property
    def is_leader(self) -> bool:
        """Say whether this controller may write."""
        return self._elector is None or self._elector.is_leader

    @property
    def has_synced(self) -> bool:
        """Say whether it leads with full caches."""
        return self._term is not None and self._term.has_synced

    def stop(self) -> None:
        """Ask `run` to finish: no new work, finish what is in work, release the Lease."""
        self._stop.set()

    async def run(self) -> None:
        """Work until stopped."""
        async with create_task_group() as beside:
            for port in (self.probe_port, self.metrics_port):
                if port is not None:
                    beside.start_soon(port.run, name="port")
            if self.metrics_port is not None:
                beside.start_soon(self.scrapes.run, name="scrapes")
            if self.config.on_cluster:
                beside.start_soon(self._preflight.run, name="preflight")
                beside.start_soon(measure_pauses, self._clock, self.metrics.loop_pause_seconds.observe, name="pauses")
            await self._unless_stopped(self._suit_server)
            while not self._stop.is_set():
                await self._run_term()
                _heed_cancellation()
            beside.cancel_scope.cancel()

    async def _suit_server(self) -> None:
        """Let agents be added as the API server's version has features for them; one that is away is waited for.

        A server that does not say its version is taken for a new one.
        """
        settings = self.config.job_settings
        if settings.agent is None or not settings.by_version:
            return
        retries = AsyncRetrying(
            retry=retry_if_exception_type((ApiError, TransportError)) & retry_if_not_exception_type(_NO),
            wait=wait_fixed(VERSION_AGAIN_S),
            sleep=self._clock.sleep,
            reraise=True,
        )
        try:
            text: str = await retries(self._client(self._transport).server_version)
        except _NO as error:
            self._log.warning("version_unknown", message=str(error), then="agents are added as for a new server")
            return
        agent = settings.agent.for_version(version_of(text))
        if agent != settings.agent:
            self._log.info("agents_suit_server", version=text, restart_rule=agent.restart_rule, copy=agent.copies_image)
        self.config = replace(self.config, job_settings=replace(settings, agent=agent))

    async def _run_term(self) -> None:
        """Lead once: from acquiring the Lease to losing or releasing it."""
        elector = self._elector
        transport: Transport = self._transport
        if elector is not None:
            if not await self._unless_stopped(elector.acquire):
                return
            transport = LeaderOnlyTransport(transport, elector)
        self.metrics.is_leader.labels(self.config.lease_name).set(1)
        try:
            await self._lead(transport, elector)
        except* LeadershipLostError as lost:
            self._log.error("leadership_lost", message=str(lost.exceptions[0]), then="nothing is written any more")
        finally:
            self._term = None
            self.metrics.is_leader.labels(self.config.lease_name).set(0)
            if elector is not None:
                await elector.release()

    async def _lead(self, transport: Transport, elector: Elector | None) -> None:
        """Run one term beside the renewal of its Lease."""
        paced = PacedTransport(transport, clock=self._clock, rng=self._rng)
        self._term = term = Term(
            self._client(paced),
            self.config,
            place=paced.place,
            clock=self._clock,
            rng=self._rng,
            log=self._log,
            metrics=self.metrics,
        )
        async with create_task_group() as group:
            if elector is not None:
                group.start_soon(elector.hold, name="hold lease")
            group.start_soon(term.run, name="term")
            await self._stop.wait()
            term.shut_down()
            if term.has_synced:
                await self._drain(term)
            group.cancel_scope.cancel()

    async def _drain(self, term: Term) -> None:
        """Wait, not for ever, for what is in work to finish."""
        try:
            async with self._clock.timeout(DRAIN_S):
                await term.finished.wait()
        except TimeoutError:
            self._log.warning("work_unfinished", bound_s=DRAIN_S)

    async def _unless_stopped(self, work: Callable[[], Awaitable[None]]) -> bool:
        """Await `work`; say False when `stop` came first."""
        is_done = False
        async with create_task_group() as group:

            async def heed_stop() -> None:
                await self._stop.wait()
                group.cancel_scope.cancel()

            group.start_soon(heed_stop)
            await work()
            is_done = True
            group.cancel_scope.cancel()
        return is_done

    @staticmethod
    def _client(transport: Transport) -> KubeClient:
        return KubeClient(transport, user_agent=USER_AGENT, field_manager=wire.FIELD_MANAGER_CONTROLLER)

    def _serve(self, address: tuple[str, int] | None, pages: Mapping[str, Page]) -> PageServer | None:
        return None if address is None else PageServer(*address, pages, self._clock)

    def _why_not_ready(self) -> str | None:
        if (missing := self._preflight.why_not_ready) is not None:
            return missing
        if self.is_leader and not self.has_synced:
            return "leading, but the caches are not filled yet"
        return None


def _heed_cancellation() -> None:
    """Make good for a task group that fails in the moment in which its task is cancelled: it raises the failure alone.

    That concerns `Task.cancel`, which asyncio.run uses; the cancellation of a scope comes again at the next await.

    Raises:
        asyncio.CancelledError: the current task was told to end.
    """
    task = asyncio.current_task()
    if task is not None and task.cancelling():
        raise asyncio.CancelledError


async def measure_pauses(clock: Clock, observe: Callable[[float], None]) -> None:
    """Measure pauses of the event loop from inside: sleep, and tell `observe` how late the loop woke, in seconds.

    The loop serves renewals, probes and restarts in turn. Anything that blocks it (one large object, a CPU limit that
    throttles) delays all of them. A pause is measured without the part of the sleep that was left when it began, so it
    is at most PAUSES_EVERY_S too short. It runs until cancelled.
    """
    while True:
        began_s = clock.monotonic_s()
        await clock.sleep(PAUSES_EVERY_S)
        observe(max(0.0, clock.monotonic_s() - began_s - PAUSES_EVERY_S))
