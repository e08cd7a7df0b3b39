"""Send one status write to many watchers, in three forms: the server's CPU, and the bytes for each watcher."""

from __future__ import annotations

import selectors
import time
from typing import Final, NamedTuple

from benchmarks.start import Start
from benchmarks.transport_starts import Http1Client, config_of
from inplace.agent.jobset_requests import USER_AGENT, watch_request
from inplace.common.kube.http import Request

ARRIVAL_S_MAX: Final = 30.0
QUIET_S: Final = 0.05  # an event is one TLS record: what comes later than this is another event
_TABLE: Final = "application/json;as=Table;g=meta.k8s.io;v=v1, application/json"


class Form(NamedTuple):
    """How a watch asks for its events."""

    accept: str
    from_state: bool = False


FORMS: Final = {
    "fan-out, Table rows, watch from the state": Form(_TABLE, from_state=True),  # the agent's own request
    "fan-out, Table rows, watch from the version": Form(_TABLE),
    "fan-out, plain JSON": Form("application/json"),
    "fan-out, PartialObjectMetadata": Form("application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"),
}


class Arrival(NamedTuple):
    """What one status write came to: seconds until the last watcher had it, bytes per watcher with TLS and without."""

    seconds: float
    wire_bytes: float
    body_bytes: float


class Watchers:
    """Connections that each watch one JobSet in one form."""

    def __init__(self, start: Start, form: Form, version: str, count: int) -> None:
        self._selector = selectors.DefaultSelector()
        self._clients = [self._open(start, form, version) for _ in range(count)]

    def drain(self) -> None:
        """Read the answers' heads, until no bytes come for a while."""
        while ready := self._selector.select(QUIET_S):
            for key, _ in ready:
                self._read(key)

    def await_event(self) -> Arrival:
        """Wait until each watcher got its event, and no more bytes come."""
        began_s = last_s = time.perf_counter()
        reached: set[int] = set()
        wire = body = 0
        while ready := self._selector.select(QUIET_S if len(reached) == len(self._clients) else ARRIVAL_S_MAX):
            for key, _ in ready:
                received, held = self._read(key)
                wire, body = wire + received, body + held
                reached.add(key.fd)
            last_s = time.perf_counter()
        missed = len(self._clients) - len(reached)
        assert not missed, f"{missed} watchers got nothing within {ARRIVAL_S_MAX:g} s"
        return Arrival(last_s - began_s, wire / len(self._clients), body / len(self._clients))

    def close(self) -> None:
        """Drop every connection."""
        self._selector.close()
        for client in self._clients:
            client.close()

    def _open(self, start: Start, form: Form, version: str) -> Http1Client:
        client = Http1Client(start.credentials, start.tls)
        rows = watch_request(
            config_of(start),
            as_table=form.accept == _TABLE,
            resource_version=version,
            from_state=form.from_state,
            jitter=0.5,
        )
        client.send(Request("GET", rows.path, {"accept": form.accept, "user-agent": USER_AGENT}))
        self._selector.register(client, selectors.EVENT_READ)
        return client

    @staticmethod
    def _read(key: selectors.SelectorKey) -> tuple[int, int]:
        client = key.fileobj
        assert isinstance(client, Http1Client)
        return client.receive()
