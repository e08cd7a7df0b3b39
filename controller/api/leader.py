"""
Leader election by Lease: at most one controller writes.

Guarantees: a leader stops writing `RENEW_DEADLINE_S` after it SENT the last renewal that was accepted. Nobody takes the
Lease over before `DURATION_S` have passed since the server stored that renewal. So there is time between two leaders,
and no overlap. Only the monotonic clock counts: another holder's times are never compared with ours, only whether its
record changed. Every request has a bound, so one that hangs cannot outlive the deadline. Source:
k8s.io/client-go/tools/leaderelection; its defaults, 15 s / 10 s / 2 s.
"""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from random import Random
from typing import Any, Final

from tenacity import AsyncRetrying, RetryCallState, retry_if_exception_type, retry_if_not_result

from inplace.common.kube.client import KubeClient
from inplace.common.kube.clock import Clock
from inplace.common.kube.errors import AlreadyExists, ApiError, Conflict, NotFound
from inplace.common.kube.http.request import Request, Response, Stream, Transport, TransportError
from inplace.common.kube.informer import Log
from inplace.common.kube.resources import LEASES, KubeObject
from inplace.common.kube.timestamps import micro_time

UNANSWERED = (ApiError, TransportError, TimeoutError)
DURATION_S: Final = 15.0  # how long the others wait after the last renewal that they saw
RENEW_DEADLINE_S: Final = 10.0  # how long a leader writes after its last renewal; SHORTER than the former
RETRY_S: Final = 2.0  # pause between two attempts
REQUEST_S_MAX: Final = RENEW_DEADLINE_S / 2  # for one attempt: two fit into the renew deadline
JITTER = 0.2  # of the retry period, so that candidates do not march in step


class LeadershipLostError(Exception):
    """Another controller holds the Lease, or may soon hold it."""


class NotLeaderError(TransportError):
    """A write was refused here: this process is not the leader (any more)."""


class Elector:
    """One candidate.

    Args:
        identity: of this candidate; unique among all.
        namespace: of the Lease.
        name: of the Lease.
    """

    def __init__(
        self, client: KubeClient, identity: str, namespace: str, name: str, *, clock: Clock, rng: Random, log: Log
    ) -> None:
        self._client = client
        self._identity = identity
        self._namespace = namespace
        self._name = name
        self._clock = clock
        self._rng = rng
        self._log = log
        self._lease: KubeObject | None = None  # as last read or written
        self._seen: Any = None  # the spec that was last seen, and since when it is the same
        self._seen_s = 0.0
        self._valid_until_s = 0.0
        self._leads = False
        self._in_doubt = False  # a write of ours was sent and not answered since the last that was
        self._yield_until_s = 0.0

    @property
    def is_leader(self) -> bool:
        """Say whether this process may write."""
        return self.left_s > 0

    @property
    def left_s(self) -> float:
        """Return for how many seconds this process may still write."""
        return self._valid_until_s - self._clock.monotonic_s() if self._leads else 0.0

    async def acquire(self) -> None:
        """Return once this process is the leader."""
        attempts = AsyncRetrying(
            retry=retry_if_not_result(bool) | retry_if_exception_type(UNANSWERED),
            wait=lambda _: self._pause_s(),
            before_sleep=self._note_attempt,
            sleep=self._clock.sleep,
        )
        await attempts(self._attempt)
        self._leads = True
        self._log.info("leadership_won", identity=self._identity)

    async def _attempt(self) -> bool:
        async with self._clock.timeout(REQUEST_S_MAX):
            return await self._try()

    def _note_attempt(self, state: RetryCallState) -> None:
        if state.outcome is not None and state.outcome.failed:
            problem = str(state.outcome.exception()) or "no answer in time"
            self._log.warning("leadership_not_acquired", message=problem)

    async def hold(self) -> None:
        """Renew the Lease for as long as that works.

        Raises:
            LeadershipLostError: it is no longer certain that nobody else leads; from here on nothing may be
            written.
        """
        try:
            while True:
                await self._clock.sleep(self._pause_s())
                try:
                    async with self._clock.timeout(self._renewal_s()):
                        renewed = await self._try()
                except UNANSWERED as error:
                    self._in_doubt = self._in_doubt or isinstance(error, TimeoutError)
                    problem = str(error) or "no answer in time"
                    self._log.warning("leadership_not_renewed", message=problem, left_s=self.left_s)
                    renewed = True  # unknown; the deadline decides
                if not renewed:
                    raise LeadershipLostError(f"the lease is held by {self._holder()!r}")
                if self.left_s <= 0:
                    raise LeadershipLostError(f"no renewal for {RENEW_DEADLINE_S:g} s")
        finally:
            self._leads = False
            if self._in_doubt:
                # Writes whose replies get lost keep the Lease ours and lead nobody: let the others have a turn.
                turn_s = DURATION_S + 2 * RETRY_S * (1 + JITTER)
                self._yield_until_s = self._clock.monotonic_s() + turn_s

    async def release(self) -> None:
        """Give the Lease up, so that a successor need not wait; call it AFTER the last write."""
        self._leads = False
        if self._lease is None or self._holder() != self._identity:
            return
        try:
            async with self._clock.timeout(REQUEST_S_MAX):
                await self._give_up()
            self._log.info("leadership_released", identity=self._identity)
        except UNANSWERED as error:
            self._log.warning(
                "leadership_not_released", message=str(error) or "no answer in time", then="the Lease runs out"
            )

    async def _give_up(self) -> None:
        """Write the Lease without a holder, unless it has another one by now."""
        while self._lease is not None and self._holder() == self._identity:
            spec = {"holderIdentity": "", "leaseDurationSeconds": 1, "renewTime": micro_time(self._clock)}
            lease = self._lease | {"spec": self._lease["spec"] | spec}
            try:
                await self._client.replace(LEASES, self._namespace, self._name, lease)
            except Conflict:  # a renewal that was cut off in the middle may have been stored
                await self._read()
            else:
                return

    async def _try(self) -> bool:
        """Renew the Lease, or take it when it is free; say whether it is ours now."""
        ours = self._leads and self._lease is not None
        if not ours:
            there = await self._read()
            if self._clock.monotonic_s() < self._yield_until_s or not self._is_free():
                return False
            if not there:
                return await self._create()
        assert self._lease is not None
        sent_s = self._clock.monotonic_s()
        try:
            written = await self._client.replace(
                LEASES, self._namespace, self._name, self._lease | {"spec": self._spec(self._lease)}
            )
        except (Conflict, NotFound):
            # Somebody else wrote, or our own earlier write was stored although its reply was lost: look.
            return await self._read() and self._holder() == self._identity and ours
        except TransportError as error:
            self._lease = None  # it may be stored, under a resourceVersion that we do not know
            self._in_doubt = self._in_doubt or error.sent
            raise
        self._accept(written, sent_s)
        return True

    async def _read(self) -> bool:
        """Read the Lease; say whether there is one."""
        try:
            self._lease = await self._client.get(LEASES, self._namespace, self._name)
        except NotFound:
            self._lease = None
            return False
        spec = self._lease.get("spec") or {}
        if spec != self._seen:
            self._seen, self._seen_s = spec, self._clock.monotonic_s()
        return True

    async def _create(self) -> bool:
        sent_s = self._clock.monotonic_s()
        lease = {
            "apiVersion": LEASES.api_version,
            "kind": LEASES.kind,
            "metadata": {"name": self._name, "namespace": self._namespace},
            "spec": self._spec(None),
        }
        try:
            self._accept(await self._client.create(LEASES, self._namespace, lease), sent_s)
        except AlreadyExists:
            return False
        return True

    def _accept(self, lease: KubeObject, sent_s: float) -> None:
        """Count our time from BEFORE the request was sent; the others count from after it was stored."""
        self._lease = lease
        self._in_doubt = False
        self._valid_until_s = sent_s + RENEW_DEADLINE_S

    def _is_free(self) -> bool:
        """Say whether the Lease may be taken: ours, released, or not renewed for its whole duration.

        One that vanished is as it was last seen: its holder does not know yet.
        """
        spec = self._seen or {}
        if spec.get("holderIdentity") in (None, "", self._identity):
            return True
        duration_s = max(float(spec.get("leaseDurationSeconds") or 0), DURATION_S)
        return self._clock.monotonic_s() - self._seen_s >= duration_s

    def _holder(self) -> str:
        return str(((self._lease or {}).get("spec") or {}).get("holderIdentity") or "")

    def _spec(self, lease: KubeObject | None) -> dict[str, Any]:
        """Return the record that says we lead."""
        old = ((lease or {}).get("spec")) or {}
        now = micro_time(self._clock)
        new = dict(old) | {
            "holderIdentity": self._identity,
            "leaseDurationSeconds": round(DURATION_S),
            "renewTime": now,
        }
        if old.get("holderIdentity") != self._identity:
            new["acquireTime"] = now
            new["leaseTransitions"] = int(old.get("leaseTransitions") or 0) + (lease is not None)
        return new

    def _renewal_s(self) -> float:
        """Return how long a renewal may take: never longer than this process leads."""
        return min(REQUEST_S_MAX, max(0.0, self.left_s))

    def _pause_s(self) -> float:
        return RETRY_S * (1.0 + JITTER * self._rng.random())


class LeaderOnlyTransport:
    """Lets a write through only while `elector` leads, and bounds it by the time that is left."""

    def __init__(self, inner: Transport, elector: Elector) -> None:
        self._inner = inner
        self._elector = elector

    async def request(self, request: Request, *, timeout_s: float) -> Response:
        """Send a request; a write without leadership is refused here and never sent."""
        if request.method != "GET":
            left_s = self._elector.left_s
            if left_s <= 0:
                raise NotLeaderError(f"{request.method} {request.path}: not the leader", sent=False)
            timeout_s = min(timeout_s, left_s)
        return await self._inner.request(request, timeout_s=timeout_s)

    def stream(self, request: Request, *, timeout_s: float) -> AbstractAsyncContextManager[Stream]:
        """Open a stream; reading is always allowed."""
        return self._inner.stream(request, timeout_s=timeout_s)
