"""Read the Events about one object. An object is its UID: Events outlive it, and another may have its name by then."""

from __future__ import annotations

from typing import Final

import msgspec

from inplace.common.jobset.causes import unix_time
from inplace.common.kube.answers import decoded
from inplace.common.kube.client import LIST_TIMEOUT_S, KubeClient
from inplace.common.kube.http.request import Request
from inplace.common.kube.resources import Resource

CORE_EVENTS: Final = Resource("", "v1", "events", "Event")  # only this form can be asked for by object
EVENTS_MAX: Final = 500  # of one object; the server keeps an hour


class _Series(msgspec.Struct, rename="camel"):
    count: int = 0
    last_observed_time: str | None = None


class Event(msgspec.Struct, rename="camel"):
    """One Event."""

    reason: str | None = None
    message: str | None = None
    type: str | None = None
    event_time: str | None = None
    first_timestamp: str | None = None
    last_timestamp: str | None = None
    count: int | None = None
    series: _Series | None = None

    @property
    def is_warning(self) -> bool:
        return self.type == "Warning"

    @property
    def at_s(self) -> float | None:
        """Return when it was seen last."""
        last = self.series.last_observed_time if self.series is not None else None
        texts = (last, self.last_timestamp, self.event_time, self.first_timestamp)
        return next((at for at in map(unix_time, texts) if at is not None), None)


class _List(msgspec.Struct):
    items: list[Event] | None = None


_LIST: Final = msgspec.json.Decoder(_List)


async def events_about(client: KubeClient, namespace: str, uid: str, *, reason: str = "") -> list[Event]:
    """Return the Events about an object, oldest first; with `reason` only those.

    Raises:
        ApiError, TransportError: they could not be read.
    """
    selector = f"involvedObject.uid={uid}" + (f",reason={reason}" if reason else "")
    query = {"fieldSelector": selector, "limit": str(EVENTS_MAX)}
    request = Request("GET", CORE_EVENTS.path(namespace, query=query), client.headers)
    response = await client.send(request, timeout_s=LIST_TIMEOUT_S)
    events = decoded(_LIST.decode, response.body, "a list of Events").items or []
    return sorted(events, key=lambda event: event.at_s or 0.0)
