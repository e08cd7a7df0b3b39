"""
Say how a JobSet stands: its phase, and one line for a person. Pure.

This is the only judge. `inplace status`, `explain` and the lists print its line or phase; the condition BarrierWaiting
and the metric inplace_restart_in_progress follow its phase. It is told what is known of every slot, of the JobSet
itself, and of the controller. docs/states.md is its table, printed. "It trains" is said only where some rank reports
steps. A group with spares is counted in members; a spare decides nothing, and a smaller group that trains is no
trouble: its line says how many members it has.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum
from types import MappingProxyType
from typing import Final

from inplace.common.bare.record import record
from inplace.common.protocol.members import Sizes

RENEWED_S_MAX: Final = 10.0  # a leader renews its Lease every 2 s, and writes nothing so long after its last renewal


class GroupPhase(Enum):
    """Where a JobSet is; for its scopes, the first four."""

    RUNNING = "Running"
    STARTING = "Starting"
    RESTARTING = "Restarting"
    DEGRADED = "Degraded"  # it runs, and some slot of it does not
    RECREATING = "Recreating"
    SUSPENDED = "Suspended"
    COMPLETED = "Completed"
    FAILED = "Failed"
    LEAVING = "Deleting"
    OTHER = "NotInPlace"  # restarts by recreation, or under another controller's rules
    UNREADABLE = "Unreadable"


ENDED: Final = (GroupPhase.COMPLETED, GroupPhase.FAILED)
WAITING: Final = (GroupPhase.STARTING, GroupPhase.RESTARTING, GroupPhase.DEGRADED)  # for Pods
NOT_RUNNING: Final = {  # no worker runs, or soon none will
    GroupPhase.SUSPENDED: "it is suspended",
    GroupPhase.COMPLETED: "it completed",
    GroupPhase.FAILED: "it failed",
    GroupPhase.LEAVING: "it is being deleted",
}
OWN: Final = NOT_RUNNING | {  # what the JobSet says of itself, whatever its slots do
    GroupPhase.RECREATING: "it recreates its Jobs and Pods",
    GroupPhase.UNREADABLE: "its controller cannot read it, and leaves it alone",
    GroupPhase.OTHER: "it does not restart in place: a failure recreates its Pods",
}
UNEQUIPPED: Final = "it does not restart in place yet: its Pods have no agent, and a failure recreates them"
QUEUED: Final = "it waits in a queue, which resumes it"


class SlotState(Enum):
    """What is known of one slot, the state that decides before all others first."""

    WAITING = "its Pod waits at the next barrier"
    FAILED = "its worker failed, and its agent told"
    SILENT = "a rank makes no step, and its agent told"
    VACANT = "no Pod that can run"
    PENDING = "its Pod has not joined"
    COMPLETED = "its worker ended with exit code 0"
    STARTS = "it joined; kubelet does not report its worker yet"
    STEPS = "its ranks report steps"
    RUNS = "its worker runs"
    SPARE = "its Pod waits to take a rank, and the others do not wait for it"


class Pulse(Enum):
    """What the controller's Lease says of the controller."""

    BEATS = "renewed within 10 s"
    STOPPED = "not renewed for 10 s or more"
    UNKNOWN = "not read"


PHASES: Final[Mapping[SlotState, GroupPhase]] = {  # of an epoch that runs; the first that some slot is in decides
    SlotState.WAITING: GroupPhase.RESTARTING,
    SlotState.FAILED: GroupPhase.RESTARTING,
    SlotState.SILENT: GroupPhase.RESTARTING,
    SlotState.VACANT: GroupPhase.DEGRADED,
    SlotState.PENDING: GroupPhase.DEGRADED,
    SlotState.COMPLETED: GroupPhase.DEGRADED,
    SlotState.STARTS: GroupPhase.RUNNING,
    SlotState.STEPS: GroupPhase.RUNNING,
    SlotState.RUNS: GroupPhase.RUNNING,
}
NOT_AT_WORK: Final = (SlotState.FAILED, SlotState.SILENT, SlotState.VACANT, SlotState.PENDING)
WORDS: Final[Mapping[SlotState, str]] = {  # of an epoch that runs
    SlotState.FAILED: "the workers of {some} failed{who}; {turn}",
    SlotState.SILENT: "it hangs: {some} told that a rank makes no step{who}; {turn}",
    SlotState.VACANT: "it waits: epoch {epoch} runs without {some}{who}",
    SlotState.PENDING: "it waits: epoch {epoch} runs without {some}{who}",
    SlotState.COMPLETED: "{some} completed while others run{who}",
    SlotState.STARTS: "{everyone} are at epoch {epoch}; kubelet does not report the workers of {count} yet",
    SlotState.STEPS: "it trains: {everyone} are at epoch {epoch}",
    SlotState.RUNS: "it runs; no rank reports steps: {everyone} are at epoch {epoch}",
}
WORSE: Final = "it trains badly: {everyone} are at epoch {epoch}"
NONE_RUNS: Final = "it waits: none of its {pods} runs epoch {epoch}{who}"
ALL_COMPLETED: Final = "it ends: the workers of all {pods} completed"
GATHERING: Final[Mapping[GroupPhase, str]] = {
    GroupPhase.STARTING: "it starts: {arrived} of {pods} are at the barrier of epoch {epoch}",
    GroupPhase.RESTARTING: "it restarts in place: {arrived} of {pods} are at the barrier of epoch {epoch}",
}
TURN: Final = "the next step is the controller's"
PAUSED: Final = "the next epoch waits after failures without progress"
NO_ANSWER: Final = "the controller does not answer"
UNGUARDED: Final = f"{NO_ANSWER}, so no failure is noticed"
UNRESUMED: Final = f"{NO_ANSWER}, so nothing can resume it"
WORST_FIRST: Final = (
    *(GroupPhase.RESTARTING, GroupPhase.STARTING, GroupPhase.DEGRADED, GroupPhase.OTHER, GroupPhase.RUNNING),
)


@record
class Slots:
    """What is known of the slots of one scope.

    Args:
        counts: how many slots are in which state.
        synced: S.
        deprecated: D.
        scope: its name; "" for the whole JobSet.
        first: of a state, the first Pod in it and why, in words, where that is known.
        goes_wrong: ranks tell of a bad loss, or of slow steps.
        is_paused: the next epoch waits after failures without progress.
        is_unequipped: every slot has a Pod that runs, and none has an agent.
        sizes: of a group with spares, which is counted in members; None of one without, where every slot trains.
        noun: what such a member is called: where whole Jobs are members, the slots here are Jobs.
        spares_max: so many spares it has at full strength.
        vacant: in words, the slots that neither train nor wait as spares, and why.
    """

    counts: Mapping[SlotState, int]
    synced: int
    deprecated: int
    scope: str = ""
    first: Mapping[SlotState, str] = MappingProxyType({})
    goes_wrong: bool = False
    is_paused: bool = False
    is_unequipped: bool = False
    sizes: Sizes | None = None
    spares_max: int = 0
    vacant: str = ""
    noun: str = "member"

    @property
    def runs(self) -> bool:
        """Say whether epoch S runs, and no Pod went on to the next one."""
        return self.synced > self.deprecated and not self.counts.get(SlotState.WAITING)

    @property
    def size(self) -> int:
        """Return N; of a group with spares its members: those of the epoch that runs, else at full strength."""
        if self.sizes is not None and not self.runs:
            return self.sizes.most
        return sum(self.counts.values()) - self.spares

    @property
    def spares(self) -> int:
        """Return how many Pods wait to take a rank."""
        return self.counts.get(SlotState.SPARE, 0)

    @property
    def arrived(self) -> int:
        """Return how many of `size` are at the next barrier."""
        arrived = self.counts.get(SlotState.WAITING, 0) + self.spares
        return arrived if self.sizes is None else min(arrived, self.sizes.most)

    @property
    def phase(self) -> GroupPhase:
        """Return the phase of the scope."""
        if self.synced == 0:
            return GroupPhase.OTHER if self.is_unequipped else GroupPhase.STARTING
        if not self.runs:
            return GroupPhase.RESTARTING
        return GroupPhase.RUNNING if self.state is None or self._is_over else PHASES[self.state]

    @property
    def is_restarting(self) -> bool:
        """Say whether a group restart is under way, or must come: some slot of an epoch that began does not run it."""
        return self.synced > 0 and (not self.runs or self.state in NOT_AT_WORK)

    @property
    def state(self) -> SlotState | None:
        """Return the state that decides; None without slots, and with spares alone."""
        return next((state for state in PHASES if self.counts.get(state)), None)

    @property
    def words(self) -> str:
        """Return the line of the scope."""
        pods, state = self._pods, self.state
        if self.phase is GroupPhase.OTHER:
            return UNEQUIPPED
        if not self.runs:
            epoch = self.synced + 1
            arrived = self.arrived
            words = GATHERING[self.phase].format(arrived=f"{arrived:,}", pods=pods, epoch=epoch)
            if arrived == self.size > 0:
                late = self.first.get(SlotState.PENDING)  # in a slot that no spare may take yet
                turn = f"it waits for {late}" if late else PAUSED if self.is_paused else TURN
                return f"{words}; {turn}"
            words += self._least
            return f"{words}; it waits for {self.first[SlotState.VACANT]}" if SlotState.VACANT in self.first else words
        if self._is_over or state is None:
            return ALL_COMPLETED.format(pods=pods)
        count = self.counts[state]
        some = f"all {pods}" if count == self.size else f"{count:,} of its {pods}"
        who = f": {self.first[state]}" if state in self.first else ""
        if count == self.size and PHASES[state] is GroupPhase.DEGRADED:
            return NONE_RUNS.format(pods=pods, epoch=self.synced, who=who)
        words = WORSE if self.goes_wrong and PHASES[state] is GroupPhase.RUNNING else WORDS[state]
        everyone = f"all {pods}" if self.sizes is None else self._members(self.sizes.most)
        everyone += self._least if self.sizes is not None and self.size < self.sizes.most else ""
        given = {"pods": pods, "everyone": everyone, "count": f"{count:,}", "turn": TURN, "epoch": self.synced}
        return words.format(some=some, who=who, **given) + self._others

    def _members(self, most: int) -> str:
        """Say how many members run; more than `most` after that was lowered, until the group restarts."""
        if self.size > most:
            return f"{_count(self.size, self.noun)} (max {most:,})"
        return f"{self.size:,} of {_count(most, self.noun)}"

    @property
    def _pods(self) -> str:
        return _count(self.size, "Pod" if self.sizes is None else self.noun)

    @property
    def _least(self) -> str:
        """Say with how many members it runs, too; "" where it needs all."""
        return f" (min {self.sizes.least:,})" if self.sizes is not None and self.sizes.least < self.sizes.most else ""

    @property
    def _others(self) -> str:
        """Say what the slots do that do not train."""
        if self.sizes is None:
            return ""
        spares = _count(self.spares, "spare") if self.spares else "no spare"
        parts = ([spares] if self.spares or self.spares_max else []) + ([self.vacant] if self.vacant else [])
        return "".join(f"; {part}" for part in parts)

    @property
    def _is_over(self) -> bool:
        return self.counts.get(SlotState.COMPLETED, 0) == self.size


@record
class Headline:
    """How a JobSet stands.

    Args:
        text: one line; it does not begin with the JobSet's name.
    """

    phase: GroupPhase
    text: str


def headline(
    scopes: Sequence[Slots], *, own: GroupPhase | None = None, pulse: Pulse = Pulse.UNKNOWN, is_queued: bool = False
) -> Headline:
    """Return how a JobSet stands.

    Args:
        scopes: what is known of the slots of each scope.
        own: what the JobSet says of itself; None where it says nothing, and its slots decide.
        pulse: what is known of the controller.
        is_queued: a suspended JobSet waits in a queue.
    """
    if own is not None:
        return Headline(own, _with_pulse(QUEUED if is_queued and own is GroupPhase.SUSPENDED else OWN[own], own, pulse))
    phases = [one.phase for one in scopes]
    phase = next((worst for worst in WORST_FIRST if worst in phases), GroupPhase.RUNNING)
    speaking = [one for one in scopes if one.phase is phase]
    texts = [one.words for one in speaking]
    if len(scopes) > 1:
        texts = [f"scope {one.scope}: {words}" for one, words in zip(speaking, texts, strict=True)]
    return Headline(phase, _with_pulse("; ".join(texts) or "it expects no Pod", phase, pulse))


def _with_pulse(text: str, phase: GroupPhase, pulse: Pulse) -> str:
    """Say first that the controller does not answer where the group needs it now, and last where it needs it later."""
    if pulse is not Pulse.STOPPED or phase in ENDED:
        return text
    later = {GroupPhase.RUNNING: UNGUARDED, GroupPhase.SUSPENDED: UNRESUMED}
    return f"{text}; {later[phase]}" if phase in later else f"{NO_ANSWER}: {text}"


def pulse_of(renewed_s: float | None, now_s: float) -> Pulse:
    """Return what a Lease says that was renewed at a time; None is one that nobody holds."""
    return Pulse.BEATS if renewed_s is not None and now_s - renewed_s < RENEWED_S_MAX else Pulse.STOPPED


def _count(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'s' if count != 1 else ''}"
