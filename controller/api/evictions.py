"""
Move members to spares before their Pods are evicted, where Kubernetes tells of that: EvictionRequests and Evictions.

A group with spares restarts once, with the time to save, and the slots of such Pods are avoided. Where a Pod names us
as a responder (`inplace.dev/controller`), its Eviction waits until then; we tell how it stands. We never end a Pod, and
keep no eviction up that a restart would not help. Without the API, or the right, nothing is different. docs/adr/0107
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from anyio import create_task_group

from inplace.common.jobset.causes import unix_time
from inplace.common.jobset.evictions import EvictionObject
from inplace.common.jobset.kinds import Pod
from inplace.common.kube.client import KubeClient
from inplace.common.kube.clock import Clock
from inplace.common.kube.errors import ApiError, Conflict
from inplace.common.kube.http.request import TransportError
from inplace.common.kube.informer import Handler, Informer, Log
from inplace.common.kube.resources import EVICTION_REQUESTS, EVICTIONS, Resource
from inplace.common.kube.timestamps import time_text
from inplace.controller.api.served_kinds import ServedKinds
from inplace.controller.tracking.group import Group
from inplace.controller.tracking.membership import Membership

AGAIN_S: Final = 600.0  # a server without the API is asked so often: alpha, and off in Kubernetes 1.37
LOOK_S: Final = 1.0  # while an eviction waits for us
HEARTBEAT_S: Final = 300.0  # the API gives a responder up that is silent for 20 minutes
PAUSE_S: Final = 20.0  # between two reports, and after an answer that is an error; the end is told at once
RESTART_S_MAX: Final = 60.0  # for which an eviction waits for a group that restarts already, or has not begun
KINDS: Final = (EVICTION_REQUESTS, EVICTIONS)

Make = Callable[[Resource, Handler[EvictionObject], Callable[[str], None]], Informer[EvictionObject]]
_Key = tuple[Resource, str]  # kind, name


class EvictionReader:
    """Lets ledgers with spares know whose Pods should go, and reports to who asked. `run` it beside the work.

    Args:
        make: makes an informer of a kind, with a handler and a listener for how its watches end.
    """

    def __init__(
        self, client: KubeClient, membership: Membership, pods: Informer[Pod], make: Make, clock: Clock, log: Log
    ) -> None:
        self._client = client
        self._membership = membership
        self._pods = pods
        self._make = make
        self._clock = clock
        self._log = log
        self._away: dict[str, dict[_Key, EvictionObject]] = {}  # by namespace
        self._ours: dict[tuple[str, str], EvictionObject] = {}  # Evictions that wait for us, by namespace and name
        self._told: dict[
            tuple[str, str], tuple[float, bool]
        ] = {}  # of these: when we reported; whether that was refused
        self._waits = asyncio.Event()
        self._served = ServedKinds(client, KINDS, self._made, self._begin, self._say, self._say, clock, again_s=AGAIN_S)

    def note(self, group: Group) -> None:
        """Let a group's ledgers with spares know whose Pods should go; the first such group starts the watches."""
        ledgers = [one for one in group.ledgers.values() if one.members is not None]
        if not ledgers:
            return
        self._served.asked.set()
        away = {one.pod.uid: one.pod.name for one in self._away.get(group.jobset.namespace, {}).values()}
        for scope_ledger in ledgers:
            found = [name for uid, name in away.items() if self._membership.home_of(uid) is scope_ledger]
            pods = [self._pods.get(group.jobset.namespace, name) for name in found]
            scope_ledger.requested = tuple(pod for pod in pods if pod is not None and pod.metadata.uid in away)

    async def run(self) -> None:
        """Watch, and report."""
        async with create_task_group() as group:
            group.start_soon(self._served.run, name="evictions")
            group.start_soon(self._respond, name="eviction reports")

    def _begin(self) -> None:
        self._away.clear()
        self._ours.clear()

    def _made(self, resource: Resource, ended: Callable[[str], None]) -> Informer[EvictionObject]:
        def changed(old: EvictionObject | None, new: EvictionObject | None) -> None:
            self._changed(resource, old, new)

        return self._make(resource, changed, ended)

    def _say(self, why_none: str) -> None:
        """Say that the kinds are not served; most servers have none."""
        if why_none:
            self._log.info("evictions_not_watched", message=why_none, then="members leave cordoned nodes alone")

    def _changed(self, resource: Resource, old: EvictionObject | None, new: EvictionObject | None) -> None:
        one = new or old
        assert one is not None
        namespace, name = one.metadata.namespace, one.metadata.name
        away = self._away.setdefault(namespace, {})
        was = away.pop((resource, name), None)
        if new is not None and new.wants_away:
            away[resource, name] = new
        if not away:
            del self._away[namespace]
        if new is not None and new.is_ours and resource == EVICTIONS:
            self._ours[namespace, name] = new
            self._waits.set()
        elif resource == EVICTIONS:
            self._ours.pop((namespace, name), None)
            self._told.pop((namespace, name), None)
        home = self._membership.home_of(one.pod.uid)
        if home is None or home.members is None or (was is None) == ((resource, name) not in away):
            return
        for group in tuple(self._membership):
            if group.jobset.uid == home.jobset_uid:
                self._membership.wake(group.key, 0.0)

    async def _respond(self) -> None:
        """Report until cancelled; each Eviction waits for one request at a time."""
        while True:
            await self._waits.wait()
            for key, eviction in tuple(self._ours.items()):
                await self._report(key, eviction)
            if not self._ours:
                self._waits.clear()
            await self._clock.sleep(LOOK_S)

    async def _report(self, key: tuple[str, str], eviction: EvictionObject) -> None:
        message, is_done = self._progress(eviction)
        now_s = self._clock.monotonic_s()
        told_s, is_refused = self._told.get(key, (float("-inf"), False))
        is_same = (eviction.own or {}).get("message") == message
        pause_s = PAUSE_S if is_refused else 0.0 if is_done else HEARTBEAT_S if is_same else PAUSE_S
        if now_s - told_s < pause_s:
            return
        try:
            patch = eviction.report(message, time_text(self._clock), is_done=is_done)
            await self._client.patch(EVICTIONS, *key, patch, subresource="status")
        except Conflict:  # its next version is about to come
            return
        except (ApiError, TransportError) as error:
            self._told[key] = now_s, True
            self._log.warning("eviction_not_reported", namespace=key[0], eviction=key[1], message=str(error))
        else:
            self._told[key] = now_s, False
            if is_done:
                self._ours.pop(key, None)

    def _progress(self, eviction: EvictionObject) -> tuple[str, bool]:
        """Return how it stands, in words, and whether nothing more is to be done for the Pod."""
        home = self._membership.home_of(eviction.pod.uid)
        if home is None or home.members is None:
            return "the pod is in no group with spares", True
        pod = self._pods.get(eviction.metadata.namespace, eviction.pod.name)
        if home.ledger.synced <= home.ledger.deprecated:
            since_s = unix_time((eviction.own or {}).get("startTime") or "") or 0.0
            is_late = abs(self._clock.wall_s() - since_s) > RESTART_S_MAX
            return "its group waits at the barrier", is_late
        if not home.plays(pod):
            return "no worker runs in it", True
        if home.members.spares(home.avoided) == 0:
            return "it is a member, and no spare is ready to take its rank", True
        return "it is a member: its group saves, and restarts in place so that a spare takes its rank", False
