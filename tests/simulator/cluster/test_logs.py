"""`pods/log` answers as kube-apiserver and kubelet do: stamps, since, last lines, so many bytes, previous, follow."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random
from typing import Any
from urllib.parse import urlencode

import pytest

from inplace.common.kube.client import KubeClient
from inplace.common.kube.clock import LoopClock
from inplace.common.kube.errors import BadRequest
from inplace.common.kube.http.request import Request
from inplace.common.kube.resources import PODS
from inplace.simulator.apiserver import ApiServer, ApiServerOptions, InMemoryTransport
from inplace.simulator.apiserver.options import LogRequest
from inplace.simulator.cluster.container_log import PIECE_BYTES_MAX, ContainerLog, LogFile
from inplace.simulator.cluster.logs import read_log, stamp

pytestmark = pytest.mark.virtual_time

START_S = 1_767_225_600.0  # 2026-01-01T00:00:00Z
ENDED = {"exitCode": 1, "containerID": "c://0"}


class Written:
    """A container log with three lines, a second apart, whose container runs."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "0.log"
        self.now_s = START_S
        self.ended = False
        self.log = ContainerLog(self.path, lambda: self.now_s)
        for text in ("one", "two", "three"):
            self.log.write(f"{text}\n".encode())
            self.now_s += 1

    async def read(self, **request: Any) -> str:
        """Return an answer whole."""
        return b"".join([chunk async for chunk in self.answer(**request)]).decode()

    def answer(self, **request: Any) -> AsyncIterator[bytes]:
        """Return an answer."""
        log = LogFile(self.path, lambda: self.ended)
        return read_log(log, LogRequest("worker", **request), LoopClock(self.now_s))


@pytest.fixture
def written(tmp_path: Path) -> Iterator[Written]:
    """Give a log of three lines."""
    made = Written(tmp_path)
    yield made
    if not made.ended:
        made.log.close()


async def test_each_line_has_the_time_at_which_it_was_read(written: Written) -> None:
    """Nine digits and Z, as kubelet writes them; without `timestamps` the log is as it was printed."""
    assert await written.read() == "one\ntwo\nthree\n"
    stamps = [line.partition(" ")[0] for line in (await written.read(timestamps=True)).splitlines()]
    assert stamps == [f"2026-01-01T00:00:0{second}.000000000Z" for second in range(3)]


async def test_the_options_of_a_request(written: Written) -> None:
    """The last lines come first, then the time, then the bytes, stamps included."""
    assert await written.read(tail_lines=2) == "two\nthree\n"
    assert await written.read(tail_lines=0) == ""
    assert await written.read(since_ns=int((START_S + 1) * 1e9)) == "two\nthree\n"
    assert await written.read(since_seconds=1) == "three\n"
    assert await written.read(tail_lines=2, since_ns=int((START_S + 2) * 1e9)) == "three\n"
    assert await written.read(limit_bytes=5) == "one\nt"
    assert await written.read(limit_bytes=12, timestamps=True) == "2026-01-01T0"


async def test_a_long_line_has_one_stamp(written: Written) -> None:
    """A line that comes in many pieces is one line of the answer, and a tail counts pieces as the CRI does."""
    long = b"x" * (3 * PIECE_BYTES_MAX)
    for start in range(0, len(long), 1_000):
        written.log.write(long[start : start + 1_000])
    written.log.write(b"\n")
    assert await written.read(tail_lines=4, timestamps=True) == f"{stamp(int(written.now_s * 1e9))} {long.decode()}\n"
    assert len(await written.read(tail_lines=1)) == 1


async def test_an_open_line_is_there_when_its_container_has_ended(written: Written) -> None:
    """The last words of a worker that dies within a line are not lost."""
    written.log.write(b"Traceb")
    assert await written.read(tail_lines=1) == "three\n"
    written.log.close()
    written.ended = True
    assert await written.read(tail_lines=1) == "Traceb"


async def test_a_carriage_return_ends_no_line(written: Written) -> None:
    """A progress bar is one line."""
    written.log.write(b" 10%\r 20%\r\x0b\n")
    assert (await written.read(tail_lines=1, timestamps=True)).count("Z ") == 1


async def test_following_goes_on_until_the_container_ends(written: Written) -> None:
    """New lines come, behind the last ones that were asked for, and the answer ends with the container."""
    chunks: list[bytes] = []

    async def follow() -> None:
        chunks.extend([chunk async for chunk in written.answer(follow=True, tail_lines=1)])

    following = asyncio.create_task(follow())
    await asyncio.sleep(1)
    assert (chunks, following.done()) == ([], False)
    written.log.write(b"four\n")
    await asyncio.sleep(1)
    written.log.write(b"five\n")
    written.log.close()
    written.ended = True
    await asyncio.sleep(1)
    assert following.done()
    assert b"".join(chunks) == b"three\nfour\nfive\n"


async def _no_log(_pod: dict[str, Any], request: LogRequest) -> AsyncIterator[bytes]:
    yield repr(request).encode()


@asynccontextmanager
async def _serving(pod_status: dict[str, Any], **spec: Any) -> AsyncIterator[KubeClient]:
    """Give a client of a server that has one Pod, and a source that answers with the request."""
    server = ApiServer(clock=LoopClock(START_S), rng=Random(1), options=ApiServerOptions(log_source=_no_log))
    client = KubeClient(InMemoryTransport(server), user_agent="t", field_manager="t")
    containers = [{"name": "worker", "image": "i"}]
    body = {"nodeName": "n", "containers": containers} | spec
    await client.create(PODS, "default", {"metadata": {"name": "p"}, "spec": body})
    await client.patch(PODS, "default", "p", {"status": pod_status}, subresource="status")
    yield client


def _container(**state: Any) -> dict[str, Any]:
    return {"containerStatuses": [{"name": "worker", "image": "i", "imageID": "", "ready": False} | state]}


RUNS = _container(restartCount=0, state={"running": {}})


async def _answer(client: KubeClient, **query: Any) -> str:
    path = PODS.path("default", "p", subresource="log") + "?" + urlencode(query)
    return (await client.send(Request("GET", path, client.headers), timeout_s=5, expects_json=False)).body.decode()


async def test_a_query_becomes_a_request() -> None:
    """SinceTime reaches kubelet in whole seconds, whatever its zone."""
    async with _serving(RUNS) as client:
        told = await _answer(client, sinceTime="2026-01-01T01:00:01.9+01:00", tailLines=3, limitBytes=9, follow="true")
        wanted = LogRequest(
            "worker", follow=True, tail_lines=3, limit_bytes=9, since_ns=int((START_S + 1) * 1_000_000_000)
        )
        assert told == repr(wanted)
        wanted = LogRequest("worker", since_seconds=7, timestamps=True)
        assert await _answer(client, sinceSeconds=7, timestamps="true") == repr(wanted)


async def test_a_previous_container_that_was_not() -> None:
    """Is a bad request, in kubelet's words; what the API server checks is in tests/conformance/test_logs.py."""
    async with _serving(RUNS) as client:
        with pytest.raises(BadRequest) as refused:
            await _answer(client, previous="true")
        assert refused.value.message == 'previous terminated container "worker" in pod "p" not found'


@pytest.mark.parametrize(
    ("status", "words"),
    [
        ({}, 'container "worker" in pod "p" is not available'),
        (_container(restartCount=0, state={"waiting": {"reason": "ContainerCreating"}}), "waiting to start: Container"),
        (_container(restartCount=0, state={"waiting": {"reason": "ErrImagePull"}}), "image can't be pulled"),
        (_container(restartCount=0, state={"terminated": {"exitCode": 1}}), "is terminated"),
    ],
)
async def test_a_container_without_a_log(status: dict[str, Any], words: str) -> None:
    """Kubelet says why, as a bad request."""
    async with _serving(status) as client:
        with pytest.raises(BadRequest) as refused:
            await _answer(client)
        assert words in refused.value.message


async def test_a_container_that_restarts_has_the_log_before() -> None:
    """Both for `previous`, and while the new instance has not started."""
    status = _container(restartCount=1, state={"waiting": {"reason": "x"}}, lastState={"terminated": ENDED})
    async with _serving(status) as client:
        assert await _answer(client) == repr(LogRequest("worker"))
        assert await _answer(client, previous="true") == repr(LogRequest("worker", previous=True))
