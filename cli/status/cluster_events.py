"""Read the Kubernetes Events about one object, oldest first; say which could not be read."""

from __future__ import annotations

from typing import NamedTuple

from inplace.cli.connection import Connection
from inplace.common.kube.errors import ApiError, NotFound
from inplace.common.kube.http.request import TransportError
from inplace.common.kube.resources import Resource
from inplace.controller.api.object_events import Event, events_about


class Subject(NamedTuple):
    """The object that Events are about.

    Args:
        uid: "" where nothing that was read says it: then the object is read first.
    """

    kind: Resource
    name: str
    uid: str = ""


async def read_events(connection: Connection, subject: Subject, unread: list[str]) -> list[Event]:
    """Return the Events about an object; why they cannot be read is added to `unread`."""
    try:
        uid = subject.uid
        if not uid:
            uid = (await connection.client.get(subject.kind, connection.namespace, subject.name))["metadata"]["uid"]
        return await events_about(connection.client, connection.namespace, uid)
    except (ApiError, TransportError) as error:
        why = "it does not exist any more" if isinstance(error, NotFound) else error
        unread.append(f"Events of {subject.kind.kind} {subject.name}: {why}")
        return []
