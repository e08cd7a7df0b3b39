"""The parts of a group with spares: its configuration, its Pods, and a state of the world."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from inplace.common.protocol.agent import AgentState
from inplace.common.protocol.members import Members, Sizes
from inplace.common.protocol.pod_view import PodLife, PodView
from inplace.common.protocol.resume import NOTHING, Saved
from inplace.common.protocol.slot import Shape, Slot
from inplace.common.wire.members import members_text, read_members
from tests.model.configurations import kinds
from tests.model.memo import One, one

JOB: Final = "workers"
LIVE, LEAVING, GONE, COMPLETE = "live", "leaving", "gone", "complete"
LIVES: Final = {LIVE: PodLife.LIVE, LEAVING: PodLife.LEAVING, COMPLETE: PodLife.SUCCEEDED}
NO_WORKER: Final = (0, 0)
PATIENT: Final = 99  # restarts
SEEN, ENDED, VANISHED = "seen", "ended", "vanished"
KINDS: Final = kinds(
    "agent worker patch delete force cut success hang controller handover relist write torn grow stripped lost"
)


@dataclass(frozen=True, slots=True)
class MembersConfig:
    """The bounds and faults of one exploration.

    Args:
        faults: how many faults one run may hold.
        kinds: of KINDS. A spare that is late may "hang"; a sync is "torn" when S is stored before its members.
        sizes: how many members there may be.
        slots: n.
        lag: how many events a controller may be behind.
        stale: how many versions of the status a watch cache may answer with.
        restarts_max: maxRestarts.
        is_first: nobody has started; else epoch 1 runs.
        is_patient: the barrier waits for full strength for ever.
        absent, silent, upstream: see above.
        shows_epochs: the plain fields, which an upstream agent reads, show S and D; for a planted bug.
        pods: of each Job, where whole Jobs are the units (`tests.model.units`); 0 where Pods are.
    """

    faults: int
    kinds: frozenset[str]
    sizes: Sizes = field(default_factory=lambda: Sizes(2, 2))
    slots: int = 3
    lag: int = 1
    stale: int = 2
    restarts_max: int = PATIENT
    is_first: bool = False
    is_patient: bool = True
    absent: frozenset[int] = frozenset()
    silent: frozenset[int] = frozenset()
    upstream: frozenset[int] = frozenset()
    shows_epochs: bool = False
    pods: int = 0

    @property
    def units(self) -> int:
        """Return how many units there are."""
        return self.slots // (self.pods or 1)

    @property
    def shape(self) -> Shape:
        """Return the expected slots."""
        return Shape({JOB: (self.units, self.pods) if self.pods else (1, self.slots)})

    def slot(self, number: int) -> Slot:
        """Return a slot by its number among all."""
        return Slot(JOB, *divmod(number, self.pods or self.slots))

    def unit(self, number: int) -> int:
        """Return the unit of a slot."""
        return number // (self.pods or 1)

    def numbers(self, units: Iterable[int]) -> list[int]:
        """Return the slots of units, by their places among all Pods of the members."""
        each = self.pods or 1
        return [unit * each + index for unit in units for index in range(each)]

    def __str__(self) -> str:
        """Return the line that names a configuration in the report."""
        assert self.kinds <= KINDS, f"expected faults of {sorted(KINDS)}, saw {sorted(self.kinds)}"
        names = "all" if self.kinds == KINDS else ",".join(sorted(self.kinds))
        size = f"{self.sizes.least}-{self.sizes.most} of {self.units}"
        size += f" Jobs of {self.pods} Pods" if self.pods else ""
        named = [(name, getattr(self, name)) for name in ("absent", "silent", "upstream")]
        options = [f"{name}={','.join(map(str, sorted(slots)))}" for name, slots in named if slots]
        options += ["from the first start"] if self.is_first else []
        options += [] if self.restarts_max == PATIENT else [f"maxRestarts={self.restarts_max}"]
        options += [f"lag={self.lag}"] if self.lag > 1 else []
        return " ".join([f"members {size} faults={self.faults} {names}", *options])


Event = tuple[str, One[PodView] | str]


class MemberPod(NamedTuple):
    """One Pod: its object, its agent and its worker."""

    uid: str
    slot: int
    life: str = LIVE
    machine: One[AgentState] | None = None  # its agent's; None: it never starts, or has ended
    epoch: int = 0  # as announced
    ran: int = 0  # as announced
    memory: int = 0  # the last epoch that it ran, in its own file
    request: int = 0  # the epoch of a PATCH that is not stored
    stored: bool = False  # that PATCH was stored before, and its answer lost
    asked: bool = False  # this process asked for a consistent view
    worker: tuple[int, int] = NO_WORKER  # epoch, rank + 1
    cut: bool = False
    saved: One[Saved] = one(NOTHING)  # as announced
    tells: One[Saved] = one(NOTHING)  # by that PATCH
    files: Any = None  # what its workers saved (`tests.model.resume`)

    @property
    def agent(self) -> AgentState | None:
        """Return the state of its agent, or None."""
        return None if self.machine is None else self.machine.value


class Stored(NamedTuple):
    """A version of the status, as it is read."""

    synced: int = 0
    deprecated: int = 0
    listed: One[Members] | None = None

    @property
    def members(self) -> Members | None:
        """Return the members of S, as it is read."""
        return None if self.listed is None else self.listed.value


class GroupState(NamedTuple):
    """A state of the world.

    Args:
        versions: of the status, the current one last.
        pods: by slot, the newest last; without those of which nothing is left.
        events: that the leader has not seen: what happened, and the Pod as it was then, or a uid.
        leader, old: numbers of ledgers; old is -1 for none.
        counted: the uid of each rank of S.
        started: (epoch, rank + 1) of the workers that were started, of S.
        marks: for each slot, the highest epoch that a Pod had announced when it was hurt.
        exempt: epochs that are no counted restarts; only with a restarts_max.
    """

    versions: tuple[Stored, ...]
    pods: tuple[MemberPod, ...]
    events: tuple[Event, ...]
    leader: int
    old: int
    left: int
    counted: tuple[str, ...] = ()
    started: frozenset[tuple[int, int]] = frozenset()
    marks: tuple[int, ...] = ()
    exempt: int = 0
    failed: bool = False
    generations: tuple[int, ...] = ()
    lines: Any = None  # of training (`tests.model.resume`)


def on_the_wire(members: Members | None) -> Members | None:
    """Return members as others read them."""
    return None if members is None else read_members(members_text(members))


def stored_with(synced: int, deprecated: int, members: Members | None) -> Stored:
    """Return a version of the status."""
    return Stored(synced, deprecated, None if members is None else one(members))


def said(stored: Stored) -> str:
    """Return a version as a trace shows it."""
    text = "" if stored.members is None else f" {members_text(stored.members)}"
    return f"S={stored.synced} D={stored.deprecated}{text}"


def led(state: GroupState, name: str, number: int) -> GroupState:
    """Give a controller another ledger."""
    return state._replace(leader=number) if name == "leader" else state._replace(old=number)


def with_pod(state: GroupState, at: int, pod: MemberPod) -> GroupState:
    """Return a state with another Pod in the place of one."""
    return state._replace(pods=(*state.pods[:at], pod, *state.pods[at + 1 :]))


def without_pod(state: GroupState, at: int) -> GroupState:
    """Return a state without one of its Pods."""
    return state._replace(pods=(*state.pods[:at], *state.pods[at + 1 :]))
