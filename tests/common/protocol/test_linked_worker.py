"""The worker at the other end of the link: what its guards say, and what the agent makes of it."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inplace.common.protocol.errors import InvariantError, RemoteProtocolError
from inplace.common.protocol.link import Absent, Ended, Ending, Failed, Lifted, PlayedRank, Signal, Started
from inplace.common.protocol.linked_worker import (
    Event,
    Exited,
    Gone,
    Heard,
    LinkedWorkerState,
    Lost,
    PeerLeft,
    SignalWorkers,
    Tell,
    step,
)

GRACE_MS = 2000
peers = st.integers(0, 2)
epochs = st.integers(1, 2)
events = st.one_of(
    st.builds(Lifted, epochs),
    st.builds(SignalWorkers, st.sampled_from([9, 15])),
    st.builds(PeerLeft, peers),
    st.builds(
        Heard,
        peers,
        st.one_of(
            st.builds(Absent, st.just(GRACE_MS)),
            st.builds(Started, epochs),
            st.builds(Failed, epochs, st.just(1)),
            st.builds(Ended, epochs, st.just(0)),
            st.builds(Ending, epochs),
        ),
    ),
)


@given(st.lists(events, max_size=30))
def test_nothing_is_gone_beside_a_guard_that_was_lifted(given_events: list[Event]) -> None:
    """A second account of who was told to start: each has said that nothing is left, and none is missing."""
    state, busy, missing, lifted, exits = LinkedWorkerState(), set[int](), False, False, 0
    for event in given_events:
        with suppress(InvariantError, RemoteProtocolError):
            state, actions = step(state, event)
            if isinstance(event, Heard) and isinstance(event.message, Absent):
                busy.discard(event.peer)
            if isinstance(event, PeerLeft):
                missing = missing or event.peer in busy
            if isinstance(event, Lifted):
                lifted, exits = True, 0
            for action in actions:
                if isinstance(action, Tell) and isinstance(action.message, Lifted):
                    assert lifted
                    busy.add(action.peer)
                exits += isinstance(action, Exited)
                if isinstance(action, Gone):
                    assert (busy, missing, lifted, exits) == (set(), False, True, 1)
                    lifted = False


def after(*given_events: Event, awaited: int = 0) -> tuple[LinkedWorkerState, list[object]]:
    """Return the state after these events, and the actions of the last one."""
    state, actions = LinkedWorkerState(awaited=awaited), tuple[object, ...]()
    for event in given_events:
        state, actions = step(state, event)
    return state, list(actions)


def two(*more: Event) -> tuple[LinkedWorkerState, list[object]]:
    """Let two guards run their workers in epoch 1."""
    waits = [Heard(peer, Absent(GRACE_MS)) for peer in (0, 1)]
    return after(*waits, Lifted(1), *(Heard(peer, Started(1)) for peer in (0, 1)), *more)


def test_the_first_death_ends_all() -> None:
    """The agent hears of it at once, and that nothing is left only when both guards have said so."""
    state, actions = two(Heard(0, Failed(1, 7)))
    assert actions == [Exited(7), Tell(1, Signal(9))]
    assert not state.runs()
    assert two(Heard(0, Failed(1, 7)), Heard(0, Absent(0)))[1] == []
    assert two(Heard(0, Failed(1, 7)), Heard(0, Absent(0)), Heard(1, Absent(0)))[1] == [Gone()]


def test_an_order_reaches_every_guard() -> None:
    """They end as they were told, which is one exit."""
    assert two(SignalWorkers(15))[1] == [Tell(0, Signal(15)), Tell(1, Signal(15))]
    ended = (SignalWorkers(15), Heard(0, Absent(0)), Heard(1, Absent(0)))
    assert two(*ended)[1] == [Exited(137), Gone()]


def test_every_guard_of_a_member_learns_its_rank() -> None:
    """Also one that starts anew, while the lift stands; the next lift has a played of its own, or none."""
    first, second = PlayedRank(1, 2, "a-0"), PlayedRank(0, 2, "a-2")
    lifted = after(Heard(0, Absent(0)), Lifted(1, first), Heard(1, Absent(0)))
    assert lifted[1] == [Tell(1, Lifted(1, first))]
    ends = (SignalWorkers(15), Heard(0, Absent(0)), Heard(1, Absent(0)))
    for played in (second, None):
        again = after(Heard(0, Absent(0)), Lifted(1, first), Heard(1, Absent(0)), *ends, Lifted(2, played))
        assert again[1] == [Tell(0, Lifted(2, played)), Tell(1, Lifted(2, played))]


def test_an_order_without_a_guard_is_done_at_once() -> None:
    """No container of a worker is there yet, so nothing of the epoch runs."""
    assert after(Lifted(1), SignalWorkers(15))[1] == [Exited(137), Gone()]


def test_an_order_without_an_awaited_guard_loses_the_worker() -> None:
    """It may run without one, and then nobody here can end it; a guard that came ends it as ever."""
    assert after(Lifted(1), SignalWorkers(15), awaited=1)[1] == [Lost()]
    came = (Lifted(1), Heard(0, Absent(GRACE_MS)), Heard(0, Started(1)), SignalWorkers(15), Heard(0, Absent(GRACE_MS)))
    assert after(*came, awaited=1)[1] == [Exited(137), Gone()]


def test_a_container_that_is_gone_is_lost() -> None:
    """While its worker may run, at once; one that completed, or only waited, when its worker is to start again."""
    assert two(PeerLeft(0))[1] == [Lost()]
    assert two(Heard(0, Ended(1, 0)), PeerLeft(0))[1] == []
    assert two(Heard(0, Ended(1, 0)), PeerLeft(0), SignalWorkers(9), Heard(1, Absent(0)))[1] == [Lost()]
    assert after(Heard(0, Absent(0)), PeerLeft(0), Lifted(1), SignalWorkers(9))[1] == [Lost()]


def test_a_pod_that_ends_is_no_loss() -> None:
    """Kubelet ends the containers one after the other, and the agent last."""
    state, actions = two(Heard(0, Ending(1)), PeerLeft(0), Heard(1, Ending(1)), PeerLeft(1))
    assert (actions, state.is_lost, state.runs()) == ([], False, False)


def test_the_grace_is_the_longest() -> None:
    """As each guard's command line has it."""
    assert after(Heard(0, Absent(500)), Heard(1, Absent(1500)))[0].grace_s() == 1.5


@pytest.mark.parametrize("message", [Started(2), Failed(2, 1), Ended(2, 0), Absent(0), Lifted(1)])
def test_what_a_guard_cannot_say_is_its_fault(message: Started | Failed | Ended | Absent | Lifted) -> None:
    """Another epoch, or an end that nobody ordered and no death led to."""
    with pytest.raises(RemoteProtocolError, match="expected no"):
        two(Heard(0, message))


def test_two_lifts_are_a_bug() -> None:
    """One worker at a time."""
    with pytest.raises(InvariantError, match="a lift of epoch 2 beside the worker of epoch 1"):
        two(Lifted(2))
