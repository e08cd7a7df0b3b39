"""
Read the Kubernetes Events about one object, oldest first; say which could not be read.

An object is its UID: Events outlive the object by an hour, and another object may have its name by then.
"""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from inplace.cli.connection import Connection
from inplace.common.kube.answers import UNREADABLE
from inplace.common.kube.client import LIST_TIMEOUT_S
from inplace.common.kube.errors import ApiError, NotFound
from inplace.common.kube.http.request import Request, TransportError
from inplace.common.kube.resources import Resource
from inplace.controller.spec.causes import unix_time

CORE_EVENTS = Resource("", "v1", "events", "Event")  # only this form can be asked for by object
EVENTS_MAX = 500  # of one object; the server keeps an hour


class Subject(NamedTuple):
    """The object that Events are about.

    Args:
        uid: "" where nothing that was read says it: then the object is read first.
    """

    kind: Resource
    name: str
    uid: str = ""


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
        """Say whether it is a Warning."""
        return self.type == "Warning"

    @property
    def at_s(self) -> float | None:
        """Return when it was seen last."""
        last = self.series.last_observed_time if self.series is not None else None
        texts = (last, self.last_timestamp, self.event_time, self.first_timestamp)
        return next((at for at in map(unix_time, texts) if at is not None), None)


class _List(msgspec.Struct):
    items: list[Event] | None = None


_LIST = msgspec.json.Decoder(_List)


async def read_events(connection: Connection, subject: Subject, unread: list[str]) -> list[Event]:
    """Return the Events about an object; why they cannot be read is added to `unread`."""
    try:
        uid = subject.uid
        if not uid:
            uid = (await connection.client.get(subject.kind, connection.namespace, subject.name))["metadata"]["uid"]
        query = {"fieldSelector": f"involvedObject.uid={uid}", "limit": str(EVENTS_MAX)}
        request = Request("GET", CORE_EVENTS.path(connection.namespace, query=query), connection.client.headers)
        response = await connection.client.send(request, timeout_s=LIST_TIMEOUT_S)
        events = _LIST.decode(response.body).items or []
    except (ApiError, TransportError, *UNREADABLE) as error:
        why = "it does not exist any more" if isinstance(error, NotFound) else error
        unread.append(f"Events of {subject.kind.kind} {subject.name}: {why}")
        return []
    return sorted(events, key=lambda event: event.at_s or 0.0)
