"""One status write to many watchers, in three forms: what it costs the server, and what each watcher gets."""

from __future__ import annotations

import selectors
import time
from typing import Final

from agent.jobset_requests import USER_AGENT, watch_request
from benchmarks.start import Start
from benchmarks.transport_starts import Http1Client, config_of
from common.kube.http import Request

ARRIVAL_S_MAX: Final = 30.0
QUIET_S: Final = 0.05  # after the last watcher got its first byte: an event is one TLS record, so nothing is left
FORMS: Final = {
    "fan-out, Table rows": "",  # the agent's own request
    "fan-out, plain JSON": "application/json",
    "fan-out, PartialObjectMetadata": "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1",
}


class Watchers:
    """Connections that each watch one JobSet in one form; what they get is counted on the wire and not decoded."""

    def __init__(self, start: Start, accept: str, version: str, count: int) -> None:
        self._selector = selectors.DefaultSelector()
        self._clients = [self._open(start, accept, version) for _ in range(count)]

    def drain(self) -> None:
        """Read what has come (answers' heads), until nothing comes for a while."""
        while ready := self._selector.select(QUIET_S):
            for key, _ in ready:
                self._read(key)

    def await_event(self) -> tuple[float, float]:
        """Wait until each watcher got something; return (seconds until the last one did, bytes per watcher)."""
        began_s = time.perf_counter()
        reached: set[int] = set()
        total, last_s = 0, began_s
        while len(reached) < len(self._clients):
            ready = self._selector.select(ARRIVAL_S_MAX)
            assert ready, f"{len(self._clients) - len(reached)} watchers got nothing within {ARRIVAL_S_MAX:g} s"
            for key, _ in ready:
                total += self._read(key)
                reached.add(key.fd)
            last_s = time.perf_counter()
        while ready := self._selector.select(QUIET_S):
            total += sum(self._read(key) for key, _ in ready)
        return last_s - began_s, total / len(self._clients)

    def close(self) -> None:
        """Drop every connection."""
        self._selector.close()
        for client in self._clients:
            client.close()

    def _open(self, start: Start, accept: str, version: str) -> Http1Client:
        client = Http1Client(start.credentials, start.tls)
        rows = watch_request(config_of(start), as_table=not accept, resource_version=version, jitter=0.5)
        client.send(Request("GET", rows.path, {"accept": accept or rows.headers["accept"], "user-agent": USER_AGENT}))
        self._selector.register(client, selectors.EVENT_READ)
        return client

    @staticmethod
    def _read(key: selectors.SelectorKey) -> int:
        client = key.fileobj
        assert isinstance(client, Http1Client)
        received = client.receive_raw()
        assert received, "the server ended a watch"
        return received
