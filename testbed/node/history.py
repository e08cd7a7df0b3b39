"""Keep every version of a group's JobSet and Pods that the API server shows, in its order.

A watch misses nothing while the server remembers: when a connection breaks, it goes on from the last version. A server
that was restarted remembers nothing from before; then the present state is listed and its versions marked RELISTED,
because what happened in what order meanwhile nobody can tell. resourceVersions order writes across kinds: they count
etcd's revisions.
"""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import aiohttp

from inplace.common.kube.resources import KubeObject
from inplace.common.wire import names as wire
from testbed.api_client import ApiClient, UnexpectedStatus, connect

RECONNECT_S: Final = 0.05
RELISTED: Final = "RELISTED"
GONE: Final = 410
PATHS: Final = {"JobSet": "/apis/jobset.x-k8s.io/v1alpha2/namespaces/{}/jobsets", "Pod": "/api/v1/namespaces/{}/pods"}


@dataclass(frozen=True, slots=True)
class Version:
    """One version of one object, and when it was seen here."""

    kind: str
    event: str
    number: int
    seen_s: float
    stored: KubeObject

    @property
    def uid(self) -> str:
        """Return the object's uid."""
        uid: str = self.stored["metadata"]["uid"]
        return uid


@dataclass(slots=True)
class History:
    """The versions of one namespace's JobSets and Pods; `recording()` fills them."""

    kubeconfig: Path
    namespace: str
    versions: list[Version] = field(default_factory=list)

    @asynccontextmanager
    async def recording(self) -> AsyncIterator[None]:
        """Watch both kinds meanwhile."""
        watches = [asyncio.create_task(self._watch(kind)) for kind in PATHS]
        try:
            yield
        finally:
            for watch in watches:
                watch.cancel()
            for ended in await asyncio.gather(*watches, return_exceptions=True):
                if isinstance(ended, Exception):  # evidence with a hole in it must not acquit
                    raise ended

    def pods(self) -> dict[str, KubeObject]:
        """Return the newest version of each Pod that is there, by uid."""
        latest: dict[str, Version] = {}
        for version in self.versions:
            if version.kind == "Pod":
                latest[version.uid] = version
        return {uid: version.stored for uid, version in latest.items() if version.event != "DELETED"}

    def jobset(self) -> KubeObject:
        """Return the newest version of the JobSet, or nothing."""
        found = [version.stored for version in self.versions if version.kind == "JobSet"]
        return found[-1] if found else {}

    def epochs(self) -> list[tuple[int, int]]:
        """Return (S, D) of each version of the JobSet."""
        return [epochs_of(each.stored) for each in self._of("JobSet")]

    def synced(self) -> dict[int, Version]:
        """Return, for each S > 0, the first version of the JobSet that had it."""
        first: dict[int, Version] = {}
        for version in self._of("JobSet"):
            epoch, _ = epochs_of(version.stored)
            if epoch:
                first.setdefault(epoch, version)
        return first

    def announced(self, epoch: int, *, before: int) -> set[str]:
        """Return the uids of the Pods that had announced an epoch before a version."""
        return {
            version.uid for version in self._of("Pod") if version.number < before and _epoch(version.stored) == epoch
        }

    def deleted(self) -> dict[str, str]:
        """Return the Pods that went or were told to go: uid to name."""
        return {
            version.uid: version.stored["metadata"]["name"]
            for version in self._of("Pod")
            if version.event == "DELETED" or "deletionTimestamp" in version.stored["metadata"]
        }

    def first_s(self, kind: str, holds: Callable[[KubeObject], Any]) -> float:
        """Return when the first version of an object was seen for which this is true.

        Raises:
            StopIteration: there was none.
        """
        return next(version.seen_s for version in self._of(kind) if holds(version.stored))

    def _of(self, kind: str) -> list[Version]:
        return sorted((each for each in self.versions if each.kind == kind), key=lambda each: each.number)

    async def _watch(self, kind: str) -> None:
        since = "0"
        while True:
            try:
                async with connect(self.kubeconfig) as api:
                    since = await self._read(api._session, kind, since or await self._relist(api, kind))
            except (aiohttp.ClientError, TimeoutError, ConnectionError, UnexpectedStatus):
                await asyncio.sleep(RECONNECT_S)

    async def _relist(self, api: ApiClient, kind: str) -> str:
        """Take the present state after a hole in the history; return the version to go on from."""
        listed = await api.get(PATHS[kind].format(self.namespace))
        present = {each["metadata"]["uid"]: each for each in listed["items"]}
        number = int(listed["metadata"]["resourceVersion"])
        for stored in present.values():
            self._add(kind, RELISTED, int(stored["metadata"]["resourceVersion"]), stored)
        for uid, stored in self.pods().items() if kind == "Pod" else ():
            if uid not in present:
                self._add(kind, "DELETED", number, stored)
        return str(number)

    def _add(self, kind: str, event: str, number: int, stored: KubeObject) -> None:
        self.versions.append(Version(kind, event, number, time.monotonic(), stored))

    async def _read(self, session: aiohttp.ClientSession, kind: str, since: str) -> str:
        query = {"watch": "true", "allowWatchBookmarks": "true", "resourceVersion": since}
        unbounded = aiohttp.ClientTimeout(total=None)
        try:
            async with session.get(PATHS[kind].format(self.namespace), params=query, timeout=unbounded) as answer:
                if answer.status == GONE:
                    return ""
                if not answer.ok:  # a server that has just started refuses for a while
                    raise UnexpectedStatus("GET", PATHS[kind], answer.status, await answer.text())
                async for line in _lines(answer):
                    event = json.loads(line)
                    if event["type"] == "ERROR":
                        assert event["object"]["code"] == GONE, f"expected events, or that they are gone, saw {event}"
                        return ""
                    since = event["object"]["metadata"]["resourceVersion"]
                    if event["type"] != "BOOKMARK":
                        self._add(kind, event["type"], int(since), event["object"])
        except aiohttp.ClientError:
            pass
        return since


def epochs_of(jobset: KubeObject) -> tuple[int, int]:
    """Return (S, D) of a JobSet, or of its only scope: a group with spares is one."""
    status = jobset.get("status") or {}
    scopes = wire.scope_names(status)
    scoped = wire.status_of_scope(status, scopes[0]) if len(scopes) == 1 else None
    return wire.epochs_of_status(scoped or status)


async def _lines(answer: aiohttp.ClientResponse) -> Any:
    """Yield the lines of a stream; aiohttp's own reader refuses lines above 64 KiB."""
    rest = b""
    async for chunk in answer.content.iter_any():
        *whole, rest = (rest + chunk).split(b"\n")
        for line in whole:
            yield line


def _epoch(pod: KubeObject) -> int | None:
    return wire.epoch_of_pod(pod["metadata"].get("annotations") or {})
