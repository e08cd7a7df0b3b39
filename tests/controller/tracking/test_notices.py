"""What Pods tell of workers that run is listed, told once, and restarts a group only where that is asked for."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from inplace.common.jobset.kinds import POD_CODEC, Pod
from inplace.common.jobset.notices import ENTRIES_MAX, GroupNotice, in_order, listed, restart_on
from inplace.common.kube.http.request import Request
from inplace.common.kube.resources import JOBSETS
from inplace.common.wire import names as wire
from inplace.common.wire.notice import KINDS, LISTED_MAX, PAUSE, STALL, Notice, notice_text
from inplace.controller.tracking.notice_board import NoticeBoard
from inplace.simulator.apiserver import InMemoryTransport
from tests.controller.crew import Crew
from tests.controller.manifests import jobset, replicated_job
from tests.controller.rig import Rig

pytestmark = pytest.mark.virtual_time

AT_S = 1_700_000_000.5
GROUP = jobset(jobs=[replicated_job(pods=6)])


def text(kind: str = "slow", *, epoch: int = 1, value: int = 310, rank: str = "rank-3", **more: Any) -> str:
    """Return an annotation's value."""
    return notice_text(Notice(epoch, kind, value, rank, more.get("step"), more.get("at_s", AT_S)))


async def tell(rig: Rig, crew: Crew, pod: str, kind: str = "slow", seconds: float = 2.0, **more: Any) -> None:
    """Let a Pod's agent tell, and time pass."""
    await crew.annotate(pod, {wire.NOTICE: text(kind, **more)})
    await rig.settle(seconds)


async def notices(crew: Crew) -> list[tuple[str, str]]:
    """Return the Pod and the kind of each entry."""
    return [(one["pod"], one["kind"]) for one in (await crew.status()).get(wire.NOTICES) or ()]


async def test_their_count_goes_with_the_jobset(rig: Rig) -> None:
    """A series of a JobSet that is deleted ends."""
    crew = await rig.started(GROUP)
    await tell(rig, crew, next(iter(crew.pods.values())))
    metrics = rig.controllers[0].metrics
    assert "inplace_notices_total{" in metrics.text().decode()
    await rig.admin.delete(JOBSETS, "default", "train")
    await rig.settle(2.0)
    assert "inplace_notices_total{" not in metrics.text().decode()


GARBAGE = ["", "v1,epoch=1", text() + ",more=1", "x" * 100_000, text(epoch=0), "\x00"]
FORGED = [text("loss", epoch=epoch) for epoch in (2, 3, 2_147_483_647)]


@pytest.mark.parametrize(("words", "told"), [*((words, 1) for words in GARBAGE), *((words, 0) for words in FORGED)])
async def test_garbage_and_a_forged_epoch_are_no_notice(rig: Rig, words: str, told: int) -> None:
    """Only garbage is told, as in any annotation of a Pod; what its peers tell is listed all the same."""
    crew = await rig.started(jobset(jobs=[replicated_job(pods=3)], annotations={wire.RESTART_ON: "loss+slow+steps"}))
    first, second, *_ = crew.pods.values()
    await crew.annotate(first, {wire.NOTICE: words})
    await tell(rig, crew, second, "busy")
    events = await rig.events("UnreadablePod")
    assert len(events) == told
    assert all("notice: expected v1,epoch=EPOCH,kind=KIND" in event["note"] for event in events)
    assert (await notices(crew), await crew.epochs()) == ([(second, "busy")], (1, 0))


async def test_agents_read_the_list_from_a_column(rig: Rig) -> None:
    """As JSON, in the Table that they watch; nothing is in it where nobody tells."""
    crew = await rig.started(GROUP)

    async def column() -> str | None:
        query = {"includeObject": "None"}
        accept = {"accept": "application/json;as=Table;g=meta.k8s.io;v=v1"}
        request = Request("GET", JOBSETS.path("default", query=query), accept)
        answer = await InMemoryTransport(rig.server, user="agent").request(request, timeout_s=5.0)
        table = json.loads(answer.body)
        titles = [one["name"] for one in table["columnDefinitions"]]
        cell: str | None = table["rows"][0]["cells"][titles.index(wire.COLUMN_NOTICES)]
        return cell

    assert not await column()
    await tell(rig, crew, next(iter(crew.pods.values())), "busy", value=60, seconds=1.0)
    assert json.loads(await column() or "") == (await crew.status())[wire.NOTICES]


entries = st.builds(
    GroupNotice,
    st.sampled_from(KINDS),
    st.just(3),
    st.sampled_from(("", "a")),
    st.integers(1, 9),
    step=st.none() | st.integers(0, 9),
    pod=st.sampled_from("pqrstuvw"),
    at=st.integers(0, 9).map(lambda second: f"2026-01-01T00:00:0{second}.000000Z"),
)


@given(st.lists(entries, max_size=40))
def test_the_board_lists_what_sorting_them_all_lists(told: list[GroupNotice]) -> None:
    """It keeps LISTED_MAX of a kind and forgets the rest at once, and still lists the right ones."""
    # A Pod is silent, or it was: one of the two at a time.
    one_each = list({(one.scope, one.kind.replace(PAUSE, STALL), one.pod): one for one in told}.values())
    boards = {scope: NoticeBoard() for scope in ("", "a")}
    for one in one_each:
        boards[one.scope].put(one)
    found = listed(entry for board in boards.values() for entry in board.entries())
    assert found == listed(one_each)
    for scope in boards:
        for kind in KINDS:
            of_kind = [one for one in one_each if (one.scope, one.kind) == (scope, kind)]
            assert [one for one in found if (one.scope, one.kind) == (scope, kind)] == list(in_order(of_kind))[
                :LISTED_MAX
            ]


def test_a_pause_takes_the_place_of_its_stall() -> None:
    """And a stall that of the pause before it, as often as that happens; other Pods' entries stay."""
    board = NoticeBoard()
    other = GroupNotice(STALL, 3, "", 301, "rank-1", 41, "b", "n", "2026-01-01T00:00:00.000000Z")
    mine = replace(other, rank="rank-0", pod="a")
    assert board.put(other)
    assert board.put(mine)
    over = replace(mine, kind=PAUSE, value=420)
    assert board.put(over)
    assert sorted((one.kind, one.pod) for one in board.entries()) == [(PAUSE, "a"), (STALL, "b")]
    longer = replace(mine, value=1_300, at="2026-01-01T01:00:00.000000Z")
    assert board.put(longer)
    assert sorted((one.kind, one.pod, one.value) for one in board.entries()) == [(STALL, "a", 1_300), (STALL, "b", 301)]


def test_the_list_never_has_more_than_the_crd_takes() -> None:
    """A hundred scopes tell all that they can: as many as possible have their first ones, busy ranks above all."""
    many = [
        GroupNotice(kind, 1, f"s{scope:03}", pod=f"p{number}", at=f"2026-01-01T00:00:0{number}Z")
        for scope in range(100)
        for kind in KINDS
        for number in range(LISTED_MAX)
    ]
    found = listed(many)
    assert (len(found), {one.kind for one in found}, len({one.scope for one in found})) == (ENTRIES_MAX, {"busy"}, 64)
    assert found == listed(reversed(many))


def pod(number: int) -> Pod:
    """Return a Pod."""
    metadata = {"name": f"train-w-{number}", "namespace": "n", "uid": str(number), "resourceVersion": "1"}
    return POD_CODEC.convert({"metadata": metadata, "spec": {"nodeName": f"node-{number}"}})


def test_what_thousands_tell_is_bounded() -> None:
    """5,000 Pods whose steps get slow take LISTED_MAX places, however often each tells."""
    board, changes = NoticeBoard(), 0
    for _ in range(2):
        for number in range(5_000):
            slow = Notice(1, "steps", 200, "rank-0", 100, AT_S + number)
            changes += board.note(pod(number), slow, scope="", synced=1)
    assert (changes, len(list(board.entries()))) == (LISTED_MAX, LISTED_MAX)
    assert not board.note(pod(1), Notice(3, "busy", 1, "r", None, AT_S), scope="", synced=1), "of no epoch near"
    assert board.note(pod(1), Notice(2, "busy", 1, "r", None, AT_S), scope="", synced=1), "the next: S may be late"
    assert [one.kind for one in board.entries()] == ["busy"]


def test_the_longest_entry_fits_the_event_and_the_crd() -> None:
    """A note of an Event has at most 1,024 bytes."""
    for kind in KINDS:
        longest = GroupNotice(kind, 2**31 - 1, "s" * 63, 9_999_999, "r" * 32, 10**12 - 1, "p" * 253, "n" * 253)
        assert len(str(longest)) < 512


@pytest.mark.parametrize(("value", "kinds"), [("loss+slow", {"loss", "slow"}), ("steps", {"steps"}), ("busy", set())])
def test_kinds_are_read(value: str, kinds: set[str]) -> None:
    """The names of kinds; nothing of what cannot be read."""
    assert restart_on({wire.RESTART_ON: value}) == kinds
