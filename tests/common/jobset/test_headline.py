"""The headline is a function of a table; each cell is a test. docs/states.md prints what the cells say."""

from __future__ import annotations

import pytest

from inplace.common.jobset.headline import (
    ENDED,
    NO_ANSWER,
    OWN,
    PHASES,
    RENEWED_S_MAX,
    TURN,
    UNEQUIPPED,
    GroupPhase,
    Pulse,
    Slots,
    SlotState,
    headline,
    pulse_of,
)
from inplace.common.protocol.members import Sizes
from inplace.controller.api.leader import RENEW_DEADLINE_S
from tests.docs.states_page import MEMBERS, PAGE, slots_of

WHO = "train-w-0-2"
IN_TROUBLE = {  # states that keep the others from training: the first line names the Pod
    SlotState.FAILED: GroupPhase.RESTARTING,
    SlotState.SILENT: GroupPhase.RESTARTING,
    SlotState.VACANT: GroupPhase.DEGRADED,
    SlotState.PENDING: GroupPhase.DEGRADED,
    SlotState.COMPLETED: GroupPhase.DEGRADED,
}


@pytest.mark.parametrize("pulse", Pulse)
@pytest.mark.parametrize("all_of_them", [False, True], ids=["one", "all"])
@pytest.mark.parametrize("state", PHASES)
def test_a_cell_of_an_epoch_that_runs(state: SlotState, pulse: Pulse, all_of_them: bool) -> None:
    """It trains only where ranks report steps; a Pod in trouble is named, and so is a controller that has stopped."""
    found = headline([slots_of(state, all_of_them=all_of_them)], pulse=pulse)
    text = found.text
    assert text.startswith("it trains") == (state is SlotState.STEPS)
    assert text.startswith("it runs; no rank reports steps") == (state is SlotState.RUNS)
    assert (NO_ANSWER in text) == (pulse is Pulse.STOPPED)
    is_over = state is SlotState.COMPLETED and all_of_them
    if state in IN_TROUBLE and not is_over:
        assert found.phase is IN_TROUBLE[state]
        assert WHO in text
        assert text.startswith(NO_ANSWER) == (pulse is Pulse.STOPPED), "who must act now stands first"
    elif state is SlotState.WAITING:
        assert found.phase is GroupPhase.RESTARTING
        assert (TURN in text) == all_of_them
    else:
        assert found.phase is GroupPhase.RUNNING
    assert not found.text.endswith(": ")
    assert "{" not in text


@pytest.mark.parametrize("pulse", Pulse)
@pytest.mark.parametrize("state", [SlotState.VACANT, SlotState.PENDING, SlotState.WAITING])
def test_a_cell_before_the_first_epoch(state: SlotState, pulse: Pulse) -> None:
    """It starts, whatever is known, and this is no restart."""
    slots = slots_of(state, all_of_them=True, synced=0)
    found = headline([slots], pulse=pulse)
    assert (found.phase, slots.is_restarting) == (GroupPhase.STARTING, False)
    assert "it starts: " in found.text
    assert (NO_ANSWER in found.text) == (pulse is Pulse.STOPPED)


def test_a_group_that_was_annotated_while_it_ran() -> None:
    """Its Pods have no agent: nothing waits, and a failure recreates them. Beside an epoch that runs they are late."""
    counts = {SlotState.PENDING: 3}
    found = headline([Slots(counts, 0, 0, is_unequipped=True)])
    assert (found.phase, found.text) == (GroupPhase.OTHER, UNEQUIPPED)
    assert not Slots(counts, 0, 0, is_unequipped=True).is_restarting
    assert headline([Slots(counts, 2, 1, is_unequipped=True)]).phase is GroupPhase.DEGRADED


@pytest.mark.parametrize("pulse", Pulse)
@pytest.mark.parametrize("is_queued", [False, True], ids=["no queue", "queue"])
@pytest.mark.parametrize("own", OWN)
def test_a_cell_of_the_jobsets_own_state(own: GroupPhase, pulse: Pulse, is_queued: bool) -> None:
    """What the JobSet says of itself comes before its slots; a suspended one in a queue says so."""
    found = headline([slots_of(SlotState.STEPS, all_of_them=True)], own=own, pulse=pulse, is_queued=is_queued)
    assert found.phase is own
    assert "it trains" not in found.text
    assert ("queue" in found.text) == (is_queued and own is GroupPhase.SUSPENDED)
    assert (NO_ANSWER in found.text) == (pulse is Pulse.STOPPED and own not in ENDED)


@pytest.mark.parametrize("other", SlotState)
@pytest.mark.parametrize("state", SlotState)
def test_the_state_that_decides(state: SlotState, other: SlotState) -> None:
    """Of two states the one that stands first decides, so a group with one Pod in trouble never trains."""
    order = list(SlotState)
    slots = Slots({state: 1, other: 1} if state is not other else {state: 2}, 2, 1)
    decides = min(state, other, key=order.index)
    assert slots.state is (decides if decides is not SlotState.SPARE else None)
    at_work = {SlotState.STEPS, SlotState.RUNS, SlotState.SPARE}
    is_fine = {state, other} <= at_work and SlotState.STEPS in (state, other)
    assert headline([slots]).text.startswith("it trains") == is_fine
    is_lost = decides in (SlotState.WAITING, *IN_TROUBLE) and decides is not SlotState.COMPLETED
    assert slots.is_restarting == is_lost


def test_a_group_with_spares() -> None:
    """It is counted in members; no spare, vacant slot or smaller size is a restart, or degrades a group that trains."""
    lines = {name: headline([slots]) for name, slots in MEMBERS.items()}
    assert {name: line.text for name, line in lines.items()} == {
        "8 train, 2 are spares": "it trains: 8 of 8 members are at epoch 2; 2 spares",
        "slot 3 was lost, and a spare has its rank": (
            "it trains: 8 of 8 members are at epoch 2; 1 spare; slot 3 is vacant: no Pod"
        ),
        "no spare is left": (
            "it trains: 8 of 8 members are at epoch 2; no spare; 2 slots are vacant, the first is slot 3: no Pod"
        ),
        "6 train": (
            "it trains: 6 of 8 members (min 6) are at epoch 2; 1 spare; 3 slots are vacant, the first is slot 3: no Pod"
        ),
        "a member is lost, 2 are spares": "it waits: epoch 2 runs without 1 of its 8 members: train-w-0-2; 2 spares",
        "5 are back, 2 were spares": "it restarts in place: 7 of 8 members are at the barrier of epoch 3 (min 6)",
        "9 are back": f"it restarts in place: 8 of 8 members are at the barrier of epoch 3; {TURN}",
        "9 are back, and slot 2 may still run": (
            f"it restarts in place: 8 of 8 members are at the barrier of epoch 3; it waits for {WHO}"
        ),
    }
    trains = {name for name, line in lines.items() if line.text.startswith("it trains")}
    assert {name for name, line in lines.items() if line.phase is GroupPhase.RUNNING} == trains
    assert all(MEMBERS[name].is_restarting == (name not in trains) for name in lines)
    exact = Slots({SlotState.STEPS: 8}, 2, 1, sizes=Sizes(8, 8))
    assert exact.words == "it trains: 8 of 8 members are at epoch 2", "it asked for no spare"
    back = Slots({SlotState.WAITING: 1, SlotState.SPARE: 2, SlotState.STEPS: 7}, 2, 1, sizes=Sizes(8, 8))
    assert back.words.startswith("it restarts in place: 3 of 8 members"), "spares may take ranks"


def test_the_worst_scope_speaks() -> None:
    """Of several scopes the one that is worst off gives phase and line, with its name."""
    fine, bad = slots_of(SlotState.STEPS, all_of_them=True), slots_of(SlotState.VACANT, all_of_them=False)
    found = headline([fine, Slots(bad.counts, 2, 1, "b", bad.first)])
    assert found.phase is GroupPhase.DEGRADED
    assert found.text == f"scope b: it waits: epoch 2 runs without 1 of its 3 Pods: {WHO}"


def test_a_pulse() -> None:
    """A Lease that nobody renewed for as long as a leader may write is that of a controller that has stopped."""
    assert RENEWED_S_MAX == RENEW_DEADLINE_S
    assert [pulse_of(90.0, now_s) for now_s in (99.9, 100.0)] == [Pulse.BEATS, Pulse.STOPPED]
    assert pulse_of(None, 0.0) is Pulse.STOPPED


def test_the_page_has_every_cell() -> None:
    """docs/states.md has a row for each state, alone and for all slots."""
    rows = [line.split(" | ")[0].removeprefix("| ") for line in PAGE.read_text().splitlines()]
    assert all(rows.count(state.name.lower()) >= 3 for state in PHASES)
