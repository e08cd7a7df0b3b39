"""Events: a repeated Event is one object, and Events never delay the controller's work."""

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from random import Random

import pytest
import structlog
from structlog.testing import capture_logs

from inplace.common.jobset.note import Note
from inplace.common.kube.client import KubeClient
from inplace.common.kube.clock import LoopClock
from inplace.common.kube.http.request import Request, Response
from inplace.common.kube.resources import EVENTS, KubeObject
from inplace.controller.api.events import (
    BURST,
    NOTE_BYTES_MAX,
    QUEUE_MAX,
    REFILL_S,
    SERIES_LIFE_S,
    SERIES_MAX,
    EventRecorder,
)
from inplace.simulator.apiserver import ApiServer, ApiServerOptions, InMemoryTransport
from tests.controller.background import background

pytestmark = pytest.mark.virtual_time

JOBSET: KubeObject = {
    "apiVersion": "jobset.x-k8s.io/v1alpha2",
    "kind": "JobSet",
    "metadata": {"name": "train", "namespace": "default", "uid": "u", "resourceVersion": "7"},
}


UNREADABLE = 1_251  # PATCHes of a worker with its agent's token, each with another text that cannot be read


def another(uid: str, namespace: str = "default") -> KubeObject:
    """Return another JobSet."""
    return {**JOBSET, "metadata": {**JOBSET["metadata"], "namespace": namespace, "uid": uid}}


class Rig:
    """A recorder on an embedded API server."""

    def __init__(self) -> None:
        self.clock = LoopClock(1_700_000_000.0)
        self.broken = False
        server = ApiServer(clock=self.clock, rng=Random(1), options=ApiServerOptions(interceptor=self._intercept))
        server.load([])
        self.client = KubeClient(InMemoryTransport(server), user_agent="t", field_manager="t")
        self.written: list[str] = []  # paths
        self.recorder = EventRecorder(
            self.client, clock=self.clock, rng=Random(2), log=structlog.get_logger(), instance="me"
        )

    @property
    def writes(self) -> int:
        """Return how many requests wrote."""
        return len(self.written)

    async def emit(self, reason: str, message: str, *, seconds: float = 1.0, warning: bool = False) -> None:
        """Say something about a JobSet, and let time pass."""
        self.recorder.emit(JOBSET, Note(reason, message, warning=warning))
        await self.clock.sleep(seconds)

    async def events(self) -> list[KubeObject]:
        """Return the stored Events."""
        items: list[KubeObject] = (await self.client.list(EVENTS, "default"))["items"]
        return items

    async def _intercept(self, request: Request, _: str) -> Response | None:
        if request.method != "GET":
            self.written.append(request.path)
        return Response(500, {}, b"no") if self.broken else None


@asynccontextmanager
async def recording() -> AsyncIterator[Rig]:
    """Run a recorder."""
    rig = Rig()
    async with background(rig.recorder.run()):
        yield rig


@pytest.fixture
def rig() -> AbstractAsyncContextManager[Rig]:
    """Return a recorder that runs; a test gets the `Rig` itself."""
    return recording()


async def test_an_event_has_upstreams_form(rig: Rig) -> None:
    """An Event has upstream's reason, note, type, action and regarding object."""
    await rig.emit("ReachedMaxRestarts", "100 % over", warning=True)
    (event,) = await rig.events()
    assert event["type"] == "Warning"
    assert event["reason"] == "ReachedMaxRestarts"
    assert event["note"] == "100 % over"
    assert event["action"] == "Reconciling"
    assert event["regarding"]["uid"] == "u"
    assert event["metadata"]["name"].startswith("train.")
    assert "series" not in event


async def test_repeats_are_one_event_with_a_count(rig: Rig) -> None:
    """Fifty repeats within ten seconds are one Event and a few writes."""
    for _ in range(50):
        await rig.emit("JobCreationFailed", "no", seconds=0.2)
    await rig.clock.sleep(10.0)
    (event,) = await rig.events()
    assert event["series"]["count"] == 50
    assert rig.writes <= 5


async def test_a_repeat_after_a_while_is_news(rig: Rig) -> None:
    """After six minutes without repeats the same note makes a new Event."""
    for _ in range(2):
        await rig.emit("A", "b", seconds=SERIES_LIFE_S + 1)
    assert len(await rig.events()) == 2


async def test_one_that_waits_does_not_hold_up_another(rig: Rig) -> None:
    """A series that was written lately waits; a new Event behind it does not."""
    await rig.emit("A", "b", seconds=0.1)
    rig.recorder.emit(JOBSET, Note("A", "b"))
    await rig.emit("C", "d", seconds=1.5)
    assert {event["reason"] for event in await rig.events()} == {"A", "C"}


async def test_a_server_that_refuses_events_stops_nothing(rig: Rig) -> None:
    """Refused Events are logged and dropped; later ones are written when the server is back."""
    rig.broken = True
    for number in range(QUEUE_MAX + 500):
        rig.recorder.emit(another(str(number)), Note("A", "b"))
    await rig.clock.sleep(10.0)
    rig.broken = False
    await rig.emit("B", "x" * 5000)
    (event,) = await rig.events()
    assert len(event["note"]) == NOTE_BYTES_MAX


async def test_a_long_note_is_cut_by_bytes(rig: Rig) -> None:
    """The API counts bytes: a note of 1,000 wide characters is cut between two of them, and is not refused."""
    await rig.emit("A", "\u6f22" * 1000)
    (event,) = await rig.events()
    assert NOTE_BYTES_MAX - 3 < len(event["note"].encode()) <= NOTE_BYTES_MAX
    assert set(event["note"]) == {"\u6f22", "."}


async def test_what_finds_no_place_is_counted_in_one_line(rig: Rig) -> None:
    """When a thousand JobSets make more Events than can be written, one log line counts the dropped ones."""
    with capture_logs() as logs:
        for number in range(QUEUE_MAX // 2 + 300):  # a namespace alone may take half of the places
            rig.recorder.emit(another(str(number)), Note("Told", "once", warning=True))
        await rig.clock.sleep(1.0)
    assert [(line["event"], line["count"]) for line in logs] == [("events_dropped", 300)]


@pytest.mark.attack
async def test_texts_that_cannot_be_read_make_a_burst_of_events_and_hide_nothing(rig: Rig) -> None:
    """1,251 texts of one Pod are 25 Events, then one in five minutes; another reason and another object are told."""
    for number in range(UNREADABLE):
        rig.recorder.emit(JOBSET, Note("UnreadablePod", f"saw the {number}. text", warning=True))
    await rig.emit("GroupRestartStarted", "epoch 2 is over")
    rig.recorder.emit(another("other"), Note("UnreadablePod", "saw a text", warning=True))
    await rig.clock.sleep(5.0)
    told = [event["reason"] for event in await rig.events()]
    assert sorted(told) == ["GroupRestartStarted", *["UnreadablePod"] * (BURST + 1)]
    for number in range(UNREADABLE, UNREADABLE + 3):
        await rig.emit("UnreadablePod", f"saw the {number}. text", seconds=REFILL_S, warning=True)
    assert len(await rig.events()) == len(told) + 2  # the first came too early


@pytest.mark.attack
async def test_a_repeat_without_end_is_a_few_writes(rig: Rig) -> None:
    """Texts that take turns are a series each, of which the object's bucket lets few be written; the counts go on."""
    for number in range(3_000):
        await rig.emit("UnreadablePod", f"saw text {number % 10}", seconds=1.0)
    assert rig.writes <= BURST + 3_000 / REFILL_S + 1
    (first, *_) = await rig.events()
    assert first["series"]["count"] > 1


@pytest.mark.attack
@pytest.mark.parametrize("namespaces", [1, 4, 40])
async def test_namespaces_that_say_too_much_keep_no_other_out(rig: Rig, namespaces: int) -> None:
    """However many fill the queue, an Event of another namespace finds a place in it, and is among the next written."""
    for number in range(3 * QUEUE_MAX):
        rig.recorder.emit(another(str(number), f"loud-{number % namespaces}"), Note("Told", "again", warning=True))
    rig.recorder.emit(another("other", "kube-public"), Note("Told", "once", warning=False))
    await rig.clock.sleep(1.0)
    (place,) = [place for place, path in enumerate(rig.written) if "/kube-public/" in path]
    assert place <= namespaces


async def test_a_series_that_is_forgotten_while_it_waits_harms_nobody(rig: Rig) -> None:
    """A repeat whose series is dropped while it waits causes no error."""
    for _ in range(2):
        await rig.emit("Again", "and again", warning=True, seconds=0.5)
    for number in range(SERIES_MAX):
        rig.recorder.emit(another(str(number)), Note("Told", "once", warning=True))
    await rig.clock.sleep(10.0)
    await rig.emit("Last", "and it is written", warning=False)
    assert "Last" in {event["reason"] for event in await rig.events()}


async def test_two_series_that_wait_do_not_spin(rig: Rig) -> None:
    """While everything queued must wait for its next write the recorder sleeps; then both counts are written."""
    notes = (Note("Suspended", "a"), Note("Resumed", "b"))
    for _ in range(2):
        for note in notes:
            rig.recorder.emit(JOBSET, note)
        await rig.clock.sleep(0.5)
    before = rig.clock.monotonic_s()
    await rig.clock.sleep(10.0)
    assert rig.clock.monotonic_s() - before < 10.1
    assert sorted(event["series"]["count"] for event in await rig.events()) == [2, 2]
    assert rig.writes == 4
