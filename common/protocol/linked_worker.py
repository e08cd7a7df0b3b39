"""
The worker at the other end of the link, as the agent sees it: what its guards said.

Each of the Pod's workers has a guard. Together they are the one worker of `common.protocol.pod`: it has exited once one
of them failed, and it is gone once every guard that was told to start one has said that none of its processes is left.
A guard whose connection ends has left with its container; only kubelet starts that again, so the worker is lost.

In depth `containers` guards do not stay: each ends with its worker, and waits for a lift from its first word on.

A guard that an image's ENTRYPOINT starts may not come: then the worker itself is in that container, started by kubelet
after the lift. Nothing here can end it, so where fewer guards came than were awaited the worker is lost, too.

Safety rests on one line: `Gone` needs every guard's own word. Pure; the shell carries the messages.
"""

from __future__ import annotations

from inplace.common.bare.record import record, replace
from inplace.common.bare.typed import Final
from inplace.common.protocol.errors import InvariantError, RemoteProtocolError
from inplace.common.protocol.link import Absent, Ended, Ending, Failed, Lifted, Message, Signal, Started, is_completion

# What is known of a guard; plain texts, as the guard's phases.
ABSENT: Final = "absent"  # no process of a worker; it waits for a lift
LIFTED: Final = "lifted"  # told to start a worker
RUNS: Final = "runs"  # it said that the worker runs
ENDS: Final = "ends"  # its container ends by itself: its worker completed, or its Pod ends

SIGKILL: Final = 9
STOPPED: Final = 128 + SIGKILL  # the worker's exit code if each guard only said that it is gone


@record
class Peer:
    """One guard: the number of its connection, what is known of it, and its worker's grace in milliseconds."""

    number: int
    life: str
    grace_ms: int


@record
class SignalWorkers:
    """Let the worker end by this signal."""

    number: int


@record
class Greeted:
    """A guard connected."""

    peer: int


@record
class Heard:
    """A guard said something."""

    peer: int
    message: Message


@record
class PeerLeft:
    """A guard's connection ended."""

    peer: int


@record
class Tell:
    """Say something to a guard."""

    peer: int
    message: Message


@record
class Exited:
    """One worker ended by itself with this code, or all did as they were told."""

    code: int


@record
class Gone:
    """No process of any worker is left, and every guard waits for the next lift."""


@record
class Lost:
    """A container of a worker is gone, so kubelet must start this Pod's containers again."""


Event = Lifted | SignalWorkers | Greeted | Heard | PeerLeft
Action = Tell | Exited | Gone | Lost
Step = tuple["LinkedWorkerState", tuple[Action, ...]]


@record
class LinkedWorkerState:
    """All that the machine remembers.

    Args:
        stays: guards outlive their workers: depth `process`.
        awaited: the workers of so many containers run without a guard unless one comes from there; 0: each has one.
        peers: the guards that are connected, in the order of their numbers.
        lifted: what guards are told; None while no worker may start.
        completed: a worker of this epoch ended by itself with exit code 0.
        is_ending: the worker of this epoch failed, or was told to end.
        has_exited: that was reported.
        is_short: a guard left, and with it its container.
        is_lost: that was reported, and nothing else matters.
    """

    stays: bool = True
    awaited: int = 0
    peers: tuple[Peer, ...] = ()
    lifted: Lifted | None = None
    completed: bool = False
    is_ending: bool = False
    has_exited: bool = False
    is_short: bool = False
    is_lost: bool = False

    @property
    def epoch(self) -> int | None:
        """Return the epoch of the lift."""
        return None if self.lifted is None else self.lifted.epoch

    def runs(self) -> bool:
        """Say whether some guard's worker runs, and neither it nor its Pod has begun to end."""
        return not self.is_ending and any(peer.life == RUNS for peer in self.peers)

    def grace_s(self) -> float:
        """Return the longest grace that a guard gives its worker, in seconds."""
        return max((peer.grace_ms for peer in self.peers), default=0) / 1000


def step(state: LinkedWorkerState, event: Event) -> Step:
    """Advance the machine by one event.

    Returns:
        The next state, and the actions to perform in order.

    Raises:
        RemoteProtocolError: a guard said what it cannot say now (it is at fault); the state is unchanged.
        InvariantError: the shell broke its contract (a lift beside a worker).
    """
    if state.is_lost:
        return state, ()
    if isinstance(event, Lifted):
        return _lift(state, event)
    if isinstance(event, SignalWorkers):
        return _order(state, event.number) if state.epoch is not None else (state, ())
    if isinstance(event, PeerLeft):
        return _left(state, event.peer)
    if isinstance(event, Greeted):
        return (state, ()) if state.stays else _heard(state, event.peer, Absent(0))
    return _heard(state, event.peer, event.message)


def _lift(state: LinkedWorkerState, lifted: Lifted) -> Step:
    if state.lifted is not None:
        raise InvariantError(f"a lift of epoch {lifted.epoch} beside the worker of epoch {state.epoch}")
    waiting = [peer.number for peer in state.peers if peer.life == ABSENT]
    state = replace(state, lifted=lifted, completed=False, is_ending=False, has_exited=False)
    for number in waiting:
        state = _at(state, number, LIFTED)
    return state, tuple(Tell(number, lifted) for number in waiting)


def _order(state: LinkedWorkerState, number: int, *, but: int = -1) -> Step:
    """Tell every guard whose worker may run; `but` knows already."""
    busy = [peer.number for peer in state.peers if peer.life != ABSENT and peer.number != but]
    after, words = _settled(replace(state, is_ending=True))
    return after, (*(Tell(peer, Signal(number)) for peer in busy), *words)


def _heard(state: LinkedWorkerState, number: int, message: Message) -> Step:
    life = _life(state, number)
    if isinstance(message, Absent) and (not life or (state.is_ending and life in (LIFTED, RUNS))):
        others = tuple(peer for peer in state.peers if peer.number != number)
        peers = (*others, Peer(number, ABSENT, message.grace_ms))
        state = replace(state, peers=tuple(sorted(peers, key=lambda peer: peer.number)))
        if life:
            return _settled(state)
        if state.lifted is None or state.is_ending:
            return state, ()
        return _at(state, number, LIFTED), (Tell(number, state.lifted),)
    is_news = isinstance(message, Started | Failed | Ended | Ending) and message.epoch == state.epoch
    if is_news and life not in ("", ABSENT):
        return _ran(state, number, message)
    raise RemoteProtocolError(f"expected no {message!r} from a guard that is {life or 'new'}, epoch {state.epoch}")


def _ran(state: LinkedWorkerState, number: int, message: Message) -> Step:
    """Take in the news of a worker that this machine let start."""
    if isinstance(message, Started):
        return _at(state, number, RUNS), ()
    if isinstance(message, Failed) and message.epoch > 0:
        if state.has_exited:
            return state, ()
        after, words = _order(replace(state, has_exited=True), SIGKILL, but=number)
        return after, (Exited(message.code), *words)
    return _at(replace(state, completed=state.completed or is_completion(message)), number, ENDS), ()


def _left(state: LinkedWorkerState, number: int) -> Step:
    """Forget a guard; one that owed a word leaves the worker lost."""
    life = _life(state, number)
    if not life:
        return state, ()
    state = replace(state, peers=tuple(peer for peer in state.peers if peer.number != number), is_short=True)
    owing = (LIFTED, RUNS) if state.stays else (RUNS,) if state.epoch else ()  # without epochs an end is no news
    if life in owing:
        return replace(state, is_lost=True), (Lost(),)
    return _settled(state)


def _settled(state: LinkedWorkerState) -> Step:
    """Report the end of a worker that is to end, once every guard has said so."""
    if state.epoch is None or not state.is_ending or any(peer.life != ABSENT for peer in state.peers):
        return state, ()
    if state.is_short or len(state.peers) < state.awaited:
        return replace(state, is_lost=True), (Lost(),)
    words: tuple[Action, ...] = () if state.has_exited else (Exited(STOPPED),)
    return replace(state, lifted=None, has_exited=True), (*words, Gone())


def _life(state: LinkedWorkerState, number: int) -> str:
    """Return what is known of a guard; "" if it has not said that it waits."""
    return next((peer.life for peer in state.peers if peer.number == number), "")


def _at(state: LinkedWorkerState, number: int, life: str) -> LinkedWorkerState:
    peers = tuple(replace(peer, life=life) if peer.number == number else peer for peer in state.peers)
    return replace(state, peers=peers)
