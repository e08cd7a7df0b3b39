"""The model checker at small bounds; `python -m tests.model` is the full run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inplace.common.protocol.ledger import Ledger
from inplace.common.protocol.slot import Shape
from tests.common.protocol.test_ledger_properties import events, play
from tests.model.bad_domains import explore_bad_domains
from tests.model.configurations import QUICK, kinds
from tests.model.escalations import ESCALATIONS, explore_escalations
from tests.model.explore import Result, explore, explore_world
from tests.model.frozen import freeze, thaw
from tests.model.guarded_pods import explore_containers_pod, explore_entrypoint_pod, explore_process_pod
from tests.model.member_configurations import MEMBERS_QUICK
from tests.model.member_parts import MembersConfig
from tests.model.members import explore_members
from tests.model.pacing import ALL_KINDS, PACING_CONFIGS, PacingConfig, explore_pacing
from tests.model.pods import Config
from tests.model.promises import explore_promises
from tests.model.resume import RESUME_QUICK, ResumeConfig, explore_resume
from tests.model.rules import S3
from tests.model.units import UNITS_QUICK
from tests.model.world import State, World
from tests.planted.bug import Bug
from tests.planted.checked import CHECKED

SHAPE = Shape({"a": (2, 2)})


@pytest.mark.slow
@pytest.mark.parametrize("config", QUICK, ids=str)
def test_no_reachable_state_breaks_a_rule(config: Config) -> None:
    """Every state within these bounds keeps every rule, and can come together without a further fault."""
    result = explore(config)

    assert (result.rule, result.trace) == ("", ())
    assert result.complete


class NumberedWorld(World):
    """Takes two states for two whose slots differ in their numbers alone."""

    def canonical(self, state: State) -> State:
        """Forget the past."""
        return self._without_the_past(state) if self.config.fence else state

    def alike(self, state: State) -> int:
        """Return one."""
        return 1


@pytest.mark.slow
@pytest.mark.parametrize("config", [config for config in QUICK if config.slots > 1], ids=str)
def test_a_state_counts_for_all_in_which_the_slots_have_other_numbers(config: Config) -> None:
    """The states and transitions reported are those of the whole space, whether or not each is explored."""
    every, alike = explore_world("every state", NumberedWorld(config)), explore(config)

    assert (alike.states, alike.transitions) == (every.states, every.transitions)


@pytest.mark.slow
@pytest.mark.parametrize("config", [*MEMBERS_QUICK, *UNITS_QUICK], ids=str)
def test_no_reachable_state_of_a_group_with_spares_breaks_a_rule(config: MembersConfig) -> None:
    """Each epoch has its ranks once, only members that were counted run, and no spare restarts anybody."""
    result = explore_members(config)

    assert (result.rule, result.trace) == ("", ())
    assert result.complete


@pytest.mark.slow
@pytest.mark.parametrize("config", RESUME_QUICK, ids=str)
def test_no_reachable_state_of_a_group_that_saves_steps_breaks_a_rule(config: ResumeConfig) -> None:
    """All go on from one step, which each can load, and the group always comes together."""
    result = explore_resume(config)

    assert (result.rule, result.trace) == ("", ())
    assert result.complete


@pytest.mark.slow
@pytest.mark.parametrize("uncounted", [False, True])
@pytest.mark.parametrize("annotation", ESCALATIONS)
def test_no_reachable_state_of_an_escalation_breaks_a_rule(annotation: str, uncounted: bool) -> None:
    """No window overflows, no restart is counted twice, no healthy Pod is replaced."""
    result = explore_escalations(annotation=annotation, uncounted=uncounted)

    assert (result.rule, result.trace) == ("", ())
    assert result.complete


def test_an_escalation_with_one_fault_breaks_no_rule() -> None:
    """The same at a bound that every run can afford."""
    assert explore_escalations(faults=1).rule == ""


@pytest.mark.parametrize("faults", [1, pytest.param(3, marks=pytest.mark.slow)])
def test_no_reachable_state_of_bad_domains_breaks_a_rule(faults: int) -> None:
    """A Job is made anew only if its domain is bad, never while its group runs, and each failure counts once."""
    result = explore_bad_domains(faults=faults)

    assert (result.rule, result.trace) == ("", ())
    assert result.complete


@pytest.mark.slow
@pytest.mark.parametrize("config", PACING_CONFIGS, ids=str)
def test_no_reachable_state_of_a_crash_loop_breaks_a_rule(config: PacingConfig) -> None:
    """Only failures in vain wait, for as long as they may and no longer, and every wait ends."""
    result = explore_pacing(config)

    assert (result.rule, result.trace) == ("", ())
    assert result.complete


def test_a_crash_loop_with_one_fault_breaks_no_rule() -> None:
    """The same at a bound that every run can afford."""
    assert explore_pacing(PacingConfig(1, ALL_KINDS)).rule == ""


@pytest.mark.slow
@pytest.mark.parametrize("bug", [bug for bug in CHECKED if not bug.slow], ids=lambda bug: bug.name)
def test_planted_bug_is_caught(bug: Bug) -> None:
    """The checker is not blind: with this mistake in it, the same exploration breaks a rule."""
    assert bug.check().rule


@pytest.mark.parametrize(
    "explore_pod",
    [
        explore_containers_pod,
        pytest.param(explore_process_pod, marks=pytest.mark.slow),
        pytest.param(explore_entrypoint_pod, marks=pytest.mark.slow),
    ],
)
def test_no_reachable_state_of_a_guarded_pod_breaks_a_rule(explore_pod: Callable[[], Result]) -> None:
    """The link's two machines in both depths, explored together with everything between them."""
    result = explore_pod()

    assert (result.rule, result.trace) == ("", ())
    assert result.complete


@pytest.mark.slow
def test_an_agent_keeps_what_it_promised() -> None:
    """Whenever its reads are sent and answered, no worker runs for longer than promised after its epoch was over."""
    result = explore_promises()

    assert (result.rule, result.trace) == ("", ())
    assert result.complete


def test_a_trace_names_the_shortest_way_to_the_violation() -> None:
    """A barrier that lifts too early needs four moves, and the trace tells them."""
    (bug,) = (bug for bug in CHECKED if bug.name == "the barrier lifts as soon as the epoch is announced")
    result = replace(bug, worlds=(Config(1, 0, frozenset()),)).check()

    assert result.rule == S3
    assert result.trace == (
        "pod 0.0: sees S=0 D=0 -> TakeConsistentView",
        "pod 0.0: sees S=0 D=0 consistently -> Announce 1",
        "pod 0.0: PATCH 1 is stored",
        "pod 0.0: PATCH 1 is answered -> LiftBarrier 1",
    )


def test_an_unfinished_exploration_says_so() -> None:
    """An exploration that reaches its bound on states reports that it is incomplete."""
    assert not explore(Config(2, 1, kinds("worker")), states_max=10).complete


@given(st.lists(events.filter(lambda event: event[0] != "reshape"), max_size=30))
def test_a_thawed_ledger_is_the_one_that_was_frozen(history: list[tuple[str, object]]) -> None:
    """A thawed ledger equals the frozen one."""
    ledger = Ledger(SHAPE)
    for name, value in history:
        play(ledger, name, value)

    assert thaw(SHAPE, freeze(ledger)) == ledger
