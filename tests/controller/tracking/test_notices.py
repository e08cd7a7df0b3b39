"""What Pods tell of workers that run is listed, told once, and restarts a group only where that is asked for."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inplace.common.jobset.kinds import POD_CODEC, Pod
from inplace.common.jobset.notices import ENTRIES_MAX, GroupNotice, in_order, listed, restart_on
from inplace.common.kube.http.request import Request
from inplace.common.kube.resources import JOBSETS
from inplace.common.wire import names as wire
from inplace.common.wire.notice import KINDS, LISTED_MAX, Notice, notice_text
from inplace.controller.plan.epochs import EVERY_S
from inplace.controller.tracking.notice_board import NoticeBoard
from inplace.simulator.apiserver import InMemoryTransport
from tests.controller.crew import Crew
from tests.controller.manifests import jobset, replicated_job
from tests.controller.rig import Rig

pytestmark = pytest.mark.virtual_time

AT_S = 1_700_000_000.5
GROUP = jobset(jobs=[replicated_job(pods=6)])
STATUS = "/jobsets/train/status"


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


async def test_a_notice_is_listed_and_told_once_in_one_write(rig: Rig) -> None:
    """The status has the entry; an Event and a count say it once, whatever else the Pod does; nothing restarts."""
    crew = await rig.started(GROUP)
    first, second, *_ = crew.pods.values()
    before = rig.writes(STATUS)
    await tell(rig, crew, first, "loss", value=20, step=1200)
    (entry,) = (await crew.status())[wire.NOTICES]
    at = entry.pop("at")
    assert at.startswith("2023-11-14T22:13:20.5")
    told = {"kind": "loss", "epoch": 1, "value": 20, "rank": "rank-3", "step": 1200, "pod": first}
    assert entry == told, "one scope, and no node is known"
    await crew.set_worker(first)
    await tell(rig, crew, first, "loss", value=30, step=1210)
    assert rig.writes(STATUS) == before + 1, "who tells the same again costs nothing"
    (event,) = await rig.events("WorkerNotice")
    words = f"rank 3 ({first}): the loss is no finite number from step 1200 on, 20 steps in a row or more"
    assert (event["note"], event["type"]) == (words, "Warning")
    labels = {"namespace": "default", "jobset": "train"}
    assert rig.sample("inplace_notices_total", **labels, kind="loss") == 1
    await tell(rig, crew, second, "busy", value=600)
    assert await notices(crew) == [(second, "busy"), (first, "loss")]
    (event,) = await rig.events("WorkerBusy")
    assert (event["note"], event["type"]) == (
        f"rank 3 ({second}) is busy: for 600 s no silence of its group is a stall",
        "Normal",
    )
    assert await crew.epochs() == (1, 0)


async def test_they_go_with_their_epoch_in_the_write_that_ends_it(rig: Rig) -> None:
    """No write is added; what the Pod still has from the epoch before is not listed again."""
    crew = await rig.started(GROUP)
    first, second, *_ = crew.pods.values()
    await tell(rig, crew, first)
    before = rig.writes(STATUS)
    await rig.tell(crew, second, "v1,epoch=1,code=1,at=1700000000123", 2.0)
    assert (await notices(crew), await crew.epochs()) == ([], (1, 1))
    assert wire.NOTICES not in await crew.status(), "as an optional field is removed"
    await rig.run_epoch(crew, 2)
    assert (await notices(crew), await crew.epochs(), rig.writes(STATUS)) == ([], (2, 1), before + 2)
    await tell(rig, crew, first, epoch=2, step=7)
    assert await notices(crew) == [(first, "slow")]
    assert len(await rig.events("WorkerNotice")) == 2


async def test_they_go_with_their_pod(rig: Rig) -> None:
    """Where the end of a Pod restarts nothing, what others told stays."""
    crew = await rig.started(GROUP)
    first, second, *_ = crew.pods.values()
    await tell(rig, crew, first, seconds=0.0)
    await tell(rig, crew, second, "loss")
    assert await notices(crew) == [(second, "loss"), (first, "slow")]
    await crew.set_phase(first, "Succeeded")
    await crew.remove(first)
    await rig.settle(2.0)
    assert (await notices(crew), await crew.epochs()) == ([(second, "loss")], (1, 0))


async def test_their_count_goes_with_the_jobset(rig: Rig) -> None:
    """A series of a JobSet that is deleted ends."""
    crew = await rig.started(GROUP)
    await tell(rig, crew, next(iter(crew.pods.values())))
    metrics = rig.controllers[0].metrics
    assert "inplace_notices_total{" in metrics.text().decode()
    await rig.admin.delete(JOBSETS, "default", "train")
    await rig.settle(2.0)
    assert "inplace_notices_total{" not in metrics.text().decode()


async def test_they_go_with_the_jobset(rig: Rig) -> None:
    """A JobSet that completed tells nothing of workers that run."""
    crew = await rig.started(GROUP)
    first, *_ = crew.pods.values()
    await tell(rig, crew, first)
    before = rig.writes(STATUS)
    for name in await crew.jobs():
        await crew.finish_job(name, "Complete")
    await rig.settle(2.0)
    status = await crew.status()
    assert (status["terminalState"], wire.NOTICES in status) == ("Completed", False)
    assert rig.writes(STATUS) <= before + 2
    await tell(rig, crew, first, "steps")
    assert await notices(crew) == []


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


async def test_the_newest_busy_rank_takes_its_place(rig: Rig) -> None:
    """A Pod that is busy again replaces its own entry, and the fifth Pod that of the one that was busy first."""
    crew = await rig.started(GROUP)
    pods = list(crew.pods.values())
    for number, pod in enumerate(pods[: LISTED_MAX + 1]):
        await tell(rig, crew, pod, "busy", value=60, at_s=AT_S + number)
    assert await notices(crew) == [(pod, "busy") for pod in reversed(pods[1 : LISTED_MAX + 1])]
    await tell(rig, crew, pods[1], "busy", value=60, at_s=AT_S + 100)
    assert await notices(crew) == [(pod, "busy") for pod in (pods[1], pods[4], pods[3], pods[2])]


async def test_one_pod_cannot_have_more_than_one_status_write_a_second(rig: Rig) -> None:
    """Every agent gets each write; the last word of a Pod is listed all the same."""
    crew = await rig.started(GROUP)
    first, *_ = crew.pods.values()
    before = rig.writes(STATUS)
    for number in range(100):
        await tell(rig, crew, first, "busy", value=number + 1, at_s=AT_S + number, seconds=0.05)
    await rig.settle(2.0)
    assert rig.writes(STATUS) - before <= 5 / EVERY_S + 2
    assert [one["value"] for one in (await crew.status())[wire.NOTICES]] == [100]


async def test_a_new_controller_keeps_the_list_and_tells_nothing_twice() -> None:
    """It goes on from the status and from the Pods: a Pod's annotation has its newest notice only."""
    rig = Rig()
    async with rig.running(rig.controller(leader_elect=False)):
        crew = await rig.started(GROUP)
        first, second, *_ = crew.pods.values()
        await tell(rig, crew, first, "loss")
        await tell(rig, crew, first, "busy")
        before = rig.writes(STATUS)
    await tell(rig, crew, second, "slow", seconds=0.0)
    async with rig.running(rig.controller(leader_elect=False)):
        await rig.settle(2.0)
        assert await notices(crew) == [(first, "busy"), (first, "loss"), (second, "slow")]
        assert rig.writes(STATUS) == before + 1
        assert (len(await rig.events("WorkerNotice")), len(await rig.events("WorkerBusy"))) == (2, 1)


async def test_each_scope_has_its_own(rig: Rig) -> None:
    """The entry names the scope, and goes with the scope's epoch only."""
    jobs = [replicated_job("a", pods=2), replicated_job("b", pods=2)]
    crew = await rig.started(jobset(jobs=jobs, annotations={wire.RESTART_SCOPE: "ReplicatedJob"}))
    first, _, third, fourth = crew.pods.values()
    await tell(rig, crew, first, seconds=0.0)
    await tell(rig, crew, third, "steps")
    scopes = [(one["scope"], one["pod"]) for one in (await crew.status())[wire.NOTICES]]
    assert scopes == [("a", first), ("b", third)]
    await rig.tell(crew, fourth, "v1,epoch=1,code=1,at=1700000000123", 2.0)
    assert await notices(crew) == [(first, "slow")]


@pytest.mark.parametrize(
    ("kind", "trigger", "reason", "said"),
    [
        ("loss", "loss_not_finite", "LossNotFinite", "the loss is no finite number from step 7 on, 310 steps in a row"),
        ("slow", "slow", "Slow", "its own work on a step takes 3.1 times as long as before at step 7"),
        ("steps", "slow", "SlowSteps", "steps take 3.1 times as long as before at step 7; which rank is slow"),
    ],
)
async def test_a_kind_that_is_named_restarts_the_group(
    rig: Rig, kind: str, trigger: str, reason: str, said: str
) -> None:
    """D stands in one write, with the Pod, the reason and the notice's words; the restart counts."""
    crew = await rig.started(jobset(jobs=[replicated_job(pods=3)], annotations={wire.RESTART_ON: "loss+slow+steps"}))
    first, *_ = crew.pods.values()
    before = rig.writes(STATUS)
    await tell(rig, crew, first, kind, step=7, seconds=0.1)
    entry = await crew.last_restart()
    assert (await crew.epochs(), rig.writes(STATUS)) == ((1, 1), before + 1)
    failure = entry["firstFailure"]
    assert (entry["trigger"], failure["pod"], failure["reason"]) == (trigger, first, reason)
    assert failure["message"].startswith(f"rank 3 ({first}): {said}")
    await rig.run_epoch(crew, 2)
    (event,) = await rig.events("GroupRestartStarted")
    assert "restart 1 of 3" in event["note"]
    assert said in event["note"]
    labels = {"namespace": "default", "jobset": "train", "outcome": "finished"}
    assert rig.sample("inplace_group_restarts_total", **labels, trigger=trigger) == 1
    await tell(rig, crew, first, kind, epoch=1, step=8, seconds=1.0)
    assert await crew.epochs() == (2, 1), "of an epoch that is over"


async def test_a_kind_that_is_not_named_restarts_nothing(rig: Rig) -> None:
    """Neither another kind, nor a busy rank, nor any kind where the annotation cannot be read."""
    crew = await rig.started(jobset(jobs=[replicated_job(pods=3)], annotations={wire.RESTART_ON: "loss"}))
    first, *_ = crew.pods.values()
    for kind in ("slow", "steps", "busy"):
        await tell(rig, crew, first, kind, seconds=1.5)
    await rig.annotate({wire.RESTART_ON: "loss+slow+busy"}, 1.5)
    assert await crew.epochs() == (1, 0)
    problem = (await crew.condition("SpecProblem"))["message"]
    assert "restart-on]: expected some of loss, slow, steps, with + between, saw 'loss+slow+busy'; a notice" in problem


async def test_the_annotation_holds_at_once(rig: Rig) -> None:
    """A notice that is there when its kind is named restarts the group, with its words; without it none ever does."""
    crew = await rig.started(GROUP)
    first, *_ = crew.pods.values()
    await tell(rig, crew, first, "loss", step=7)
    assert await crew.epochs() == (1, 0)
    await rig.annotate({wire.RESTART_ON: "loss"}, 0.1)
    entry = await crew.last_restart()
    assert (await crew.epochs(), entry["trigger"]) == ((1, 1), "loss_not_finite")
    assert entry["firstFailure"]["pod"] == first


async def test_a_new_controller_obeys_a_notice_that_is_there() -> None:
    """The Pod told while no controller ran."""
    rig = Rig()
    async with rig.running(rig.controller(leader_elect=False)):
        crew = await rig.started(jobset(jobs=[replicated_job(pods=3)], annotations={wire.RESTART_ON: "slow"}))
    first, *_ = crew.pods.values()
    await tell(rig, crew, first, "slow", seconds=0.0)
    async with rig.running(rig.controller(leader_elect=False)):
        await rig.settle(0.5)
        assert (await crew.epochs(), (await crew.last_restart())["trigger"]) == ((1, 1), "slow")


async def test_such_restarts_use_up_max_restarts(rig: Rig) -> None:
    """After maxRestarts of them the JobSet fails."""
    on_loss = {wire.RESTART_ON: "loss", wire.FAILURES: "backoff=0"}
    crew = await rig.started(jobset(jobs=[replicated_job(pods=2)], restarts_max=1, annotations=on_loss))
    first, *_ = crew.pods.values()
    await tell(rig, crew, first, "loss", seconds=0.5)
    await rig.run_epoch(crew, 2)
    await tell(rig, crew, first, "loss", epoch=2, seconds=0.5)
    await rig.meet(crew, 3)
    assert (await crew.status())["terminalState"] == "Failed"


@pytest.mark.parametrize(("kind", "failures"), [("slow", 1), ("steps", 0), ("loss", 0)])
async def test_a_slow_rank_blames_its_node(rig: Rig, kind: str, failures: int) -> None:
    """Any Pod of the group may be the first to tell that steps are slow, or that the loss is bad: they blame nobody."""
    annotations = {wire.RESTART_ON: "loss+slow+steps", wire.NODES: "failures=2,within=86400"}
    crew = await rig.started(jobset(jobs=[replicated_job(pods=2)], annotations=annotations))
    first, *_ = crew.pods.values()
    await crew.bind(first, "node-7")
    await rig.settle(0.5)
    await tell(rig, crew, first, kind, seconds=0.5)
    assert await crew.epochs() == (1, 1)
    assert len((await crew.status()).get(wire.NODE_FAILURES) or ()) == failures


@pytest.mark.parametrize(("kind", "replaced"), [("slow", True), ("steps", False), ("loss", False)])
async def test_a_slow_rank_s_pod_may_be_replaced(rig: Rig, kind: str, replaced: bool) -> None:
    """The step ReplacePod knows whose Pod it is where the rank told of its own work."""
    annotations = {wire.RESTART_ON: "loss+slow+steps", wire.ESCALATION: "ReplacePod=1,window=3600"}
    crew = await rig.started(jobset(jobs=[replicated_job(pods=2)], annotations=annotations))
    first, *_ = crew.pods.values()
    await tell(rig, crew, first, kind, seconds=0.5)
    (use,) = (await crew.status())[wire.ESCALATION_USES]
    assert (use["escalationStep"], use.get("pod")) == ("ReplacePod", first if replaced else None)


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
    one_each = list({(one.scope, one.kind, one.pod): one for one in told}.values())
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


async def test_a_process_without_a_rank_has_its_pods(rig: Rig) -> None:
    """As in logs and stacks; its process id says nothing to a person."""
    manifest = jobset(jobs=[replicated_job("a", pods=2), replicated_job("b", pods=2, replicas=2)])
    crew = await rig.started(manifest)
    last = list(crew.pods.values())[-1]
    await tell(rig, crew, last, "loss", value=20, rank="pid-1286")
    (entry,) = (await crew.status())[wire.NOTICES]
    assert GroupNotice.read(entry).who == f"rank 5 ({last})"
    assert GroupNotice("loss", rank="pid-1286", pod="p").who == "pod p"


async def test_ranks_that_are_all_busy_are_one_event(rig: Rig) -> None:
    """Every rank loads at a start; the list has several of them."""
    crew = await rig.started(GROUP)
    for pod in crew.pods.values():
        await tell(rig, crew, pod, "busy", value=60)
    assert len(await notices(crew)) == LISTED_MAX
    assert len(await rig.events("WorkerBusy")) == 1
