"""A group with spares is counted in members: a spare or a vacant slot keeps nobody waiting, and slots are no ranks."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inplace.cli.connection import Connection
from inplace.cli.group.pod_facts import PodFact
from inplace.cli.group.pod_table import decode_table
from inplace.cli.group.read import read_group
from inplace.cli.group.state import GroupState, group_state, state_of_status
from inplace.cli.logs.container_log import instances_of, ranks_of
from inplace.cli.status.document import status_data
from inplace.cli.status.explain import read_facts
from inplace.cli.status.explanation import explain
from inplace.cli.status.timeline import read_restart, restart_timeline, timeline_title
from inplace.cli.status.watch import watch_line
from inplace.common.jobset.headline import TURN, GroupPhase
from inplace.common.kube.resources import PODS
from inplace.common.protocol.member_ledger import MemberLedger
from inplace.common.protocol.members import Members, Sizes, members_of
from inplace.common.protocol.pod_view import PodView
from inplace.common.protocol.slot import Shape
from inplace.common.wire import names as wire
from inplace.common.wire.members import Announced, announcement_text
from tests.cli.facts import JOB, drawn, explanation_of, pod, spared, table, text_of
from tests.controller.crew import Crew
from tests.controller.manifests import jobset as jobset_of_controller
from tests.controller.manifests import replicated_job
from tests.controller.rig import running_rig

SETTING = "max=3,min=1,wait=60"
EVERYONE = Members(7, 3)
TAKEN = Members(7, 3, ((1, 3),))  # slot 3 plays rank 1
NOWHERE = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "no room"}
PENDING = {"phase": "Pending", "containerStatuses": [], "conditions": [NOWHERE]}


def group(
    *pods: PodFact, members: Members | None = TAKEN, epochs: tuple[int, int] = (7, 6), slots: int = 5
) -> GroupState:
    """Return a group of 5 Pods of which 3 train."""
    return group_state(spared(slots, SETTING, members=members, epochs=epochs), pods)


def at(epoch: int, *slots: int) -> list[PodFact]:
    """Return Pods that announced an epoch."""
    return [pod(slot, epoch) for slot in slots]


@pytest.mark.parametrize(
    ("pods", "line"),
    [
        ([*at(7, 0, 2, 3), *at(8, 1, 4)], "3 of 3 members are at epoch 7; 2 spares"),
        ([*at(7, 0, 2, 3), *at(8, 4)], "3 of 3 members are at epoch 7; 1 spare; slot 1 is vacant: no Pod"),
        (
            [*at(7, 0, 2, 3), pod(1, 0, spec={"nodeName": None}, status=PENDING)],
            "no spare; 2 slots are vacant, the first is slot 1: Pending: unschedulable: no room",
        ),
        ([*at(7, 0, 2, 3), *at(7, 1), *at(8, 4)], "1 spare; slot 1 is vacant: agent has not announced: at epoch 7"),
        ([*at(7, 0, 2, 3), *at(6, 1), *at(8, 4)], "epoch 7; 1 spare; slot 1 is vacant: agent has not followed"),
    ],
)
def test_a_group_whose_members_train(pods: list[PodFact], line: str) -> None:
    """No spare is taken for a member that waits, and no slot without one keeps the group from running."""
    state = group(*pods)
    assert line in state.headline().text
    assert (state.phase, state.expected, state.arrived, state.late) == (GroupPhase.RUNNING, 3, 3, 0)
    assert (state.stragglers, state.unnamed, state.scopes[0].working) == ([], 0, 3)
    text = drawn(state)
    assert "epoch 7 · 3 of 3 members · 3 working" in text
    assert "rank 1 is slot 3" in text
    assert "waiting for" not in text
    assert line in text_of(explanation_of(state))


def test_a_smaller_group_trains() -> None:
    """It runs, and says how many members it may have."""
    state = group(*at(7, 0, 2), *at(8, 4), members=Members(7, 2, ((1, 2),)))
    assert state.phase is GroupPhase.RUNNING
    assert "2 of 3 members (min 1) are at epoch 7; 1 spare; 2 slots are vacant, the first is slot 1" in (
        state.headline().text
    )
    assert "epoch 7 · 2 of 2 members · 2 working (max 3, min 1) · 1 spare" in drawn(state)
    assert watch_line(state, "table") == "Running big-job epoch 7: 2 of 2 (max 3, min 1) · 1 spare"
    state = group_state(spared(5, "max=2", members=TAKEN, epochs=(7, 6)), at(7, 0, 2, 3))  # max was lowered
    assert "3 members (max 2) are at epoch 7" in state.headline().text


def test_a_lost_member_is_waited_for() -> None:
    """The Pod of a rank is named, and not the vacant slot beside it."""
    state = group(*at(7, 0, 2), *at(8, 4))
    assert state.phase is GroupPhase.DEGRADED
    assert state.headline().text.startswith("it waits: epoch 7 runs without 1 of its 3 members: big-job-0-3 (no Pod)")
    assert [one.slot for one in state.stragglers] == ["big-job-0-3"]


@pytest.mark.parametrize(
    ("pods", "epochs", "arrived", "words"),
    [
        ([*at(7, 0, 2), *at(8, 3, 4)], (7, 6), 2, "2 of 3 members are at the barrier of epoch 8 (min 1)"),
        ([*at(8, 0, 4)], (7, 7), 2, "2 of 3 members are at the barrier of epoch 8 (min 1); it waits for big-job-0-1"),
        ([*at(8, 0, 2, 4)], (7, 7), 3, "3 of 3 members are at the barrier of epoch 8; the next step is the contr"),
        ([*at(8, 0, 2, 4), *at(7, 3)], (7, 7), 3, "epoch 8; it waits for train-big-job-0-3 (agent has not followed"),
        ([*at(8, 0, 2, 4), *at(7, 1)], (7, 7), 3, "of epoch 8; the next step is the controller's"),
        ([*at(1, 0, 1)], (0, 0), 2, "it starts: 2 of 3 members are at the barrier of epoch 1 (min 1); it waits for"),
    ],
)
def test_a_group_that_gathers(pods: list[PodFact], epochs: tuple[int, int], arrived: int, words: str) -> None:
    """Any slot may give it a member; where enough have come, it waits only for one in which a worker may still run."""
    state = group(*pods, epochs=epochs, members=TAKEN if epochs[0] else None)
    assert words in state.headline().text
    assert (state.expected, state.arrived) == (3, arrived)
    assert ("deleted by force" in text_of(explanation_of(state))) == (TURN in state.headline().text)
    if arrived < 3:
        assert (state.late, len(state.stragglers) + state.unnamed) == (3 - arrived, 5 - arrived)
        assert f"waiting for {3 - arrived} of {5 - arrived} Pods" in drawn(state)


def test_members_that_nobody_knows() -> None:
    """Every slot may be a member's then, so each that is not there is missed: the controller ends the epoch."""
    state = group(*at(7, 0, 1, 2), members=Members(6, 3))
    assert state.phase is GroupPhase.DEGRADED
    assert len(state.stragglers) == 2


def test_a_status_alone() -> None:
    """A list, which reads no Pods, misses no spare."""
    raw = spared(5, SETTING, members=TAKEN, epochs=(7, 6))
    assert (state_of_status(raw).phase, state_of_status(raw).expected) == (GroupPhase.RUNNING, 3)


def test_numbers_for_programs() -> None:
    """Members, spares, and which slot plays another rank than its own."""
    data = status_data(group(*at(7, 0, 2, 3), *at(8, 4)))
    members = {"max": 3, "min": 1, "spares": 1, "sparesExpected": 2, "slotOfRank": {"1": 3}, "podsPerJob": None}
    assert data["scopes"][0]["members"] == members
    assert data["scopes"][0]["podsByEpoch"] == {"7": 3}


def test_a_table_without_epochs() -> None:
    """Of a large group a Table is read: a Pod in no member's slot waits as a spare."""
    cells = [(f"train-big-job-0-{slot}-x7k2p", "2/2", "Running", "n") for slot in (0, 2, 3, 4)]
    cells[-1] = (cells[-1][0], "1/2", "Running", "n")
    state = group(*decode_table(table(*cells), "train", 7, TAKEN).pods)
    assert state.headline().text.endswith("3 of 3 members are at epoch 7; 1 spare; slot 1 is vacant: no Pod")


def test_a_rank_is_played_by_a_slot() -> None:
    """Logs and stacks name a Pod by the rank that it plays; a spare has none; `--rank 1` is slot 3."""
    raw = spared(5, SETTING, members=TAKEN, epochs=(7, 6))
    rank, count = ranks_of(raw)
    pods = [*at(7, 0, 2, 3), *at(8, 1, 4)]
    assert ([rank(one) for one in pods], count) == ([0, 2, 1, None, None], 5)
    assert [one.pod for one in instances_of(pods, rank, [range(1, 2)])] == ["train-big-job-0-3"]
    unknown, _ = ranks_of(spared(5, SETTING, members=None, epochs=(0, 0)))
    assert [unknown(one) for one in pods] == [0, 2, 3, 1, 4]


@given(st.data())
def test_the_commands_see_what_the_ledger_sees(data: st.DataObject) -> None:
    """Spares, expected members, arrivals, a restart that must come, and whose turn it is: as the controller counts."""
    slots = data.draw(st.integers(2, 4))
    most = data.draw(st.integers(1, slots - 1) | st.just(slots))
    least = data.draw(st.integers(1, most))
    players = data.draw(st.permutations(range(slots)))[: data.draw(st.integers(least, most))]
    members, epochs = members_of(7, players, 0), (7, data.draw(st.sampled_from((6, 7))))
    announced = data.draw(st.lists(st.sampled_from((8, 7, 8, None, 0)), min_size=slots, max_size=slots))
    ledger = MemberLedger(Shape({JOB: (1, slots)}), *epochs, sizes=Sizes(least, most), members=members)
    pods = [pod(slot, epoch) for slot, epoch in enumerate(announced) if epoch is not None]
    for one in pods:
        assert one.slot is not None
        ledger.observe(PodView(one.name, one.slot, one.epoch or None, version=1, ran=min(one.epoch, 7)))
    state = group_state(spared(slots, f"max={most},min={least}", members=members, epochs=epochs), pods)
    (scope,), standing = state.scopes, ledger.standing()
    if epochs[1] < 7:
        assert scope.slots.spares == standing.spares
        is_over = standing.waiting or standing.missing
        assert scope.slots.is_restarting == bool(is_over)
        assert is_over or (scope.expected, scope.arrived) == (ledger.expected, standing.running)
        return
    arrived = sum(epoch == 8 for epoch in announced)
    assert (scope.expected, scope.arrived) == (most, min(arrived, most))
    lifts = ledger.decide(restarts_max=100).synced == 8
    assert not state.headline().text.endswith(TURN) or lifts
    assert not lifts or arrived >= min(most, members.size)


async def announce(crew: Crew, epoch: int, *slots: int, ran: int = 0, run: bool = False) -> None:
    """Let the Pods of some slots announce an epoch, as agents that read members do, and perhaps run in it."""
    for slot in slots:
        name = crew.pod_at(slot)
        await crew.annotate(name, wire.epoch_annotations(epoch) | {wire.RAN: announcement_text(epoch, Announced(ran))})
        if run:
            await crew.set_worker(name, run=epoch)


@pytest.mark.virtual_time
async def test_a_member_is_lost_under_a_real_controller() -> None:
    """The commands follow it on the API server: one spare, a restart in place, and the rank on the spare's slot."""
    manifest = jobset_of_controller(jobs=[replicated_job(JOB, pods=4)], annotations={wire.MEMBERS: "max=3,min=2"})
    async with running_rig() as rig:

        async def seen() -> GroupState:
            raw, pods = await read_group(Connection(rig.admin, "default"), "train")
            return group_state(raw, pods)

        crew = await rig.with_pods(manifest)
        for slot in range(4):
            await crew.run_on(crew.pod_at(slot), f"n{slot}")
        await announce(crew, 1, 0, 1, 2, 3)
        await rig.settle()
        await announce(crew, 1, 0, 1, 2, run=True)
        await announce(crew, 2, 3)
        await rig.settle()
        runs = await seen()
        assert runs.headline().text.endswith("3 of 3 members are at epoch 1; 1 spare")
        labels = {"namespace": "default", "jobset": "train", "scope": JOB}
        assert rig.sample("inplace_pods", **labels, state="spare") == 1
        assert rig.sample("inplace_members", **labels, which="min") == 2
        lost = crew.pod_at(1)
        await rig.admin.delete(PODS, "default", lost, grace_period_s=30)
        await crew.set_phase(lost, "Failed")
        await rig.settle()
        assert (await seen()).headline().text.startswith("it restarts in place: 1 of 3 members are at the barrier")
        await announce(crew, 2, 0, 2, ran=1)
        await rig.settle()
        await announce(crew, 2, 0, 2, 3, run=True)
        await rig.settle()
        after = await seen()
        line = "3 of 3 members are at epoch 2; no spare; slot 1 is vacant: Pod failed"
        assert after.headline().text.endswith(line)
        assert "rank 1 is slot 3" in drawn(after)
        explanation = explain(await read_facts(Connection(rig.admin, "default"), "train"), now_s=0.0)
        assert line in text_of(explanation)
        (cause,) = explanation.causes
        assert (cause.kind, cause.text, cause.pods) == ("Failed", "1 vacant slot: Pod failed", (lost,))
        state, pods = await read_restart(Connection(rig.admin, "default"), "train")
        assert len(pods) == 3
        timeline = restart_timeline(pods, state.last, now_s=0.0, rows_max=10)
        assert timeline is not None
        assert timeline_title(state, timeline, pods).startswith("default/train → epoch 2, 3 members")
