"""A mistake takes a function's place for everybody who holds it, and goes without a trace."""

from __future__ import annotations

import inspect
from collections.abc import Callable

import pytest

from inplace.common.jobset.crash_loop import Backoff
from inplace.common.protocol import agent
from inplace.common.protocol import pod as pod_machine
from inplace.common.protocol.agent import AgentState, Verdict, View, is_fresh, judge
from inplace.common.protocol.lease import renewed_until_s
from inplace.common.protocol.ledger import Ledger
from inplace.common.protocol.pod import PodState
from inplace.common.protocol.slot import Shape
from inplace.controller.api.leader import Elector
from inplace.controller.plan.steps import STEPS
from tests.planted.mistake import StaleMistakeError, instead_of, planted, within

VIEW = View(synced=2, deprecated=1)
BACKOFF = Backoff(5, 300)


def test_every_holder_of_a_function_gets_the_mistake_and_then_the_function_again() -> None:
    """The module's own name, and another name under which another module imported it before, call the mistake."""
    seen = pod_machine.step(PodState(), VIEW)
    mistake = instead_of(agent.step, lambda original, state, event: (state, ()))

    with planted(mistake):
        assert agent.step(AgentState(), VIEW) == (AgentState(), ())
        assert pod_machine.step(PodState(), VIEW) == (PodState(), ())
    assert pod_machine.step(PodState(), VIEW) == seen != (PodState(), ())


def test_a_table_of_functions_and_a_bound_method_get_the_mistake() -> None:
    """What was put into a tuple, or bound to an object, before the mistake was planted calls it all the same."""
    step, wait_s = STEPS[0], BACKOFF.wait_s
    with planted(
        instead_of(STEPS[0], lambda original, *_: True), instead_of(Backoff.wait_s, lambda original, self, failures: 7)
    ):
        assert step(None) is True  # type: ignore[arg-type]
        assert wait_s(4) == 7
    assert wait_s(4) == 20


def test_a_mistake_gets_the_original_and_its_defaults() -> None:
    """The original is called as the function was, with its default values."""
    mistake = instead_of(is_fresh, lambda original, view, previous, reached=0: not original(view, previous))
    with planted(mistake):
        assert is_fresh(VIEW, None) is True
    assert is_fresh(VIEW, None) is False


def test_keyword_parameters_and_properties_can_have_mistakes() -> None:
    """A mistake may pass on keywords that it does not read, and stand for a property."""
    ledger = Ledger(Shape({"a": (1, 1)}))
    mistake = instead_of(Ledger.decide, lambda original, self, **limits: original(self, **limits))
    with planted(mistake, instead_of(Ledger.next_epoch, lambda original, self: original(self) + 10)):
        assert ledger.decide(restarts_max=0).synced == 0
        assert ledger.next_epoch == 11


def test_a_coroutine_with_a_mistake_is_still_one() -> None:
    """A caller that asks whether a function is a coroutine gets the same answer."""
    with planted(instead_of(Elector._attempt, lambda original, self: original(self))):
        assert inspect.iscoroutinefunction(Elector._attempt)


def test_two_mistakes_in_one_function_are_both_there() -> None:
    """The second mistake's original is the function with the first one, and both go."""

    def late(original: Callable[[int, View], Verdict], epoch: int, view: View) -> Verdict:
        return original(epoch - 1, view)

    with planted(instead_of(judge, late), instead_of(judge, late)):
        assert judge(4, VIEW) is Verdict.SYNCED
    assert judge(4, VIEW) is Verdict.PENDING


def test_a_mistake_within_a_function_holds_for_no_other_caller() -> None:
    """Only while the outer function runs is the inner one wrong."""
    mistake = within(renewed_until_s, instead_of(judge, lambda original, epoch, view: Verdict.PASSED))
    state = AgentState(epoch=2, view=VIEW)

    with planted(mistake):
        assert renewed_until_s(1.0, 2.0, 3.0, state) == 1.0
        assert judge(2, VIEW) is Verdict.SYNCED
    assert renewed_until_s(1.0, 2.0, 3.0, state) == 5.0


def test_it_is_known_which_mistakes_were_called() -> None:
    """A mistake that nobody called changed nothing."""
    called, idle = (
        instead_of(judge, lambda original, *_: Verdict.BYPASS),
        instead_of(is_fresh, lambda original, *_: True),
    )
    with planted(called, idle) as found:
        judge(4, VIEW)
    assert found == {called}


def test_a_mistake_for_other_parameters_does_not_fit() -> None:
    """A function that has got, lost or renamed a parameter since is an error that names it, and not a crash later."""
    for bug in (
        lambda original, epoch: Verdict.BYPASS,
        lambda original, view, epoch: Verdict.BYPASS,
        lambda original, epoch, view, reached: Verdict.BYPASS,
        lambda original, epoch, view=None: Verdict.BYPASS,
    ):
        with pytest.raises(
            StaleMistakeError, match=r"protocol\.agent\.judge: expected the parameters \(epoch: 'int', view"
        ):
            instead_of(judge, bug)


def test_what_is_no_plain_function_takes_no_mistake() -> None:
    """A class, and a function with variables of another one around it, are refused."""
    state = VIEW

    with pytest.raises(StaleMistakeError, match="without a closure"):
        instead_of(lambda: state, lambda original: state)
    with pytest.raises(StaleMistakeError, match="without a closure, saw <class"):
        instead_of(AgentState, lambda *_, **__: AgentState())
