"""The parts of one slot of the world: its configuration, its Pods, their containers and PATCHes in flight."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from tests.model.memo import One
from tests.model.rules import S2, S3, Version

KINDS: Final = frozenset(
    {"agent", "worker", "replace", "success", "patch", "controller", "handover", "write", "remind"}
)
SPOILERS: Final = frozenset({"lost", "torn"})  # a person's changes: the status is lost; D is written beyond S
CUT: Final = "cut"  # a fault: a node can reach nothing
HEALS: Final = "heals"  # no fault, and nobody may rely on it
LEASE: Final = 2  # ticks of time
FENCE: Final = LEASE + 1  # what an agent promises: a tick more, in which it ends its worker
ASSUMPTIONS: Final = frozenset(
    {
        "conflict",  # a status write with an old resourceVersion fails
        "late patch",  # a PATCH of an agent that is gone is stored before its Pod starts again, or never
        "previous",  # kubelet passes the current annotation
        "order",  # a controller sees the events of one slot in their order
        "leaving",  # the answer to an announcement says that the Pod is being deleted
        "uid",  # a Job is deleted with its UID as precondition
    }
)


@dataclass(frozen=True, slots=True)
class Config:
    """The bounds and faults of one exploration.

    Args:
        slots: N.
        faults: how many faults one run may hold.
        kinds: the faults allowed, of KINDS and SPOILERS.
        stale: how many versions of the status, the current one included, a watch cache may answer with.
        overlap: a replacement Pod may come while the old one is LEAVING.
        early: kubelet reports the worker's state, so that the controller may detect a death early.
        tells: a guard tells the agent of its worker's death, and the agent tells the controller by a PATCH.
        old_watches: an old leader goes on seeing Pods, with a lag of its own.
        supervisor: the agent is the worker's parent and the Pod's one container (`tests.model.supervisors`).
        admission: the API server refuses an epoch annotation that is lower than the one stored.
        ghosts: how many of the slots a scale-down has just removed; the group starts at work in epoch 1 then.
        restarts_max: maxRestarts.
        fence: every agent has a lease, and the controller waits for the end of those of Pods that leave.
        dropped: assumptions of ASSUMPTIONS that do not hold; for planted bugs.
    """

    slots: int
    faults: int
    kinds: frozenset[str]
    stale: int = 3
    overlap: bool = False
    early: bool = False
    tells: bool = False
    old_watches: bool = False
    supervisor: bool = False
    admission: bool = False
    ghosts: int = 0
    restarts_max: int = 99
    fence: bool = False
    dropped: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        assert self.kinds <= KINDS | SPOILERS | {CUT}, f"expected faults of {sorted(KINDS)}, saw {sorted(self.kinds)}"
        assert not self.fence or not self.kinds & {"agent", *SPOILERS}, "with a fence, these are not modelled"
        assert self.dropped <= ASSUMPTIONS, f"expected {sorted(ASSUMPTIONS)}, saw {sorted(self.dropped)}"

    def __str__(self) -> str:
        """Return the line that names a configuration in the report."""
        kinds = "all" if self.kinds == KINDS else ",".join(sorted(self.kinds))
        options = [
            name
            for name in ("overlap", "early", "tells", "old_watches", "supervisor", "admission", "fence")
            if getattr(self, name)
        ]
        options += [f"without: {assumption}" for assumption in sorted(self.dropped)]
        options += [f"ghosts={self.ghosts}"] if self.ghosts else []
        limit = [f"maxRestarts={self.restarts_max}"] if self.restarts_max < 99 else []
        return " ".join([f"N={self.slots} faults={self.faults} {kinds}", *options, *limit])


NONE, RUNNING, FAILED, SUCCEEDED = "", "running", "failed", "succeeded"
LEFTOVERS = "leftovers"  # state of a supervisor's worker: its main process is gone, leftovers may exist
LIVE, LEAVING, COMPLETE = "live", "leaving", "complete"
Worker = tuple[int, str]  # epoch of this run of the container, state
NO_WORKER: Worker = (0, NONE)


class Pod(NamedTuple):
    """One Pod: its object at the API server and its processes."""

    uid: str
    annotation: int = 0  # as stored; 0 is absent
    life: str = LIVE
    machine: One[Any] | None = None  # its agent's; None: the process is gone and kubelet has not started the next one
    request: int = 0  # the epoch of a PATCH that is on the wire
    reply: int = 0  # the epoch of a PATCH that was stored and is not answered yet
    orphan: int = 0  # the epoch of a PATCH on the wire whose sender is gone
    worker: Worker = NO_WORKER
    reported: Worker = NO_WORKER  # as kubelet last reported it
    telling: int = 0  # the epoch of a PATCH on the wire that tells of the worker's death; whoever sent it may be gone
    failed: int = 0  # the epoch of the newest such PATCH that was stored
    container: Worker = NO_WORKER  # with a supervisor: which run of the one container this is, and its state
    told: bool = False  # with a supervisor: the worker was told to stop
    seen: Version = (-1, -1, -1)  # with a supervisor: the newest version that its watch showed
    life_seen: int = 0  # how often the status had been lost in the newest version that this process saw
    memory: int = 0  # EPOCH_FILE.ran; kept only where a status may be lost, as only that reads it
    asked: bool = False  # this process asked for a consistent view
    started: Version | None = None  # the status when this process started; None once it no longer matters
    floor: int = 0  # with overlap: the newest epoch a worker of this slot had run when this process started
    cut: bool = False  # its node can reach nothing, and its kubelet ends nothing
    given_up: bool = False  # with a fence: Kubernetes deleted it because it did not hear of its node
    late: bool = False  # with a fence: the PATCH that is not answered was stored when the Pod was being deleted
    killed: bool = False  # with a fence: the worker is being killed
    rule: str = ""  # the rule that this Pod just broke

    @property
    def agent(self) -> Any:
        """Return its AgentState (with a supervisor: PodState), or None."""
        return None if self.machine is None else self.machine.value


class SlotState(NamedTuple):
    """One slot: its Pod, its leaving Pod, and its history."""

    number: int
    live: Pod | None
    leaving: Pod | None = None
    generation: int = 0
    announced: int = 0  # the highest epoch ever stored by a Pod of this slot
    ran: int = 0  # the newest epoch a worker of this slot ran


def at_place(slot: SlotState, place: int) -> SlotState:
    """Return a slot with another number."""
    live, leaving = (pod and pod._replace(uid=moved_uid(pod.uid, place)) for pod in (slot.live, slot.leaving))
    return slot._replace(number=place, live=live, leaving=leaving)


def moved_uid(uid: str, place: int) -> str:
    """Return the uid of a Pod (or the instance of its worker) in a slot with another number."""
    return f"{place}.{uid.partition('.')[2]}"


def broken_by_start(config: Config, ran: int, pod: Pod, epoch: int, now: Version) -> str:
    """Name the rule that a worker's start breaks, or return ""; `ran` is the newest epoch that its slot ran."""
    if now[0]:  # the status was lost: a new Pod cannot know its predecessor's epoch, and no part knows S
        return S2 if epoch <= pod.memory or pod.worker != NO_WORKER else ""
    last = pod.floor if config.overlap else ran
    if epoch <= last or pod.worker != NO_WORKER:
        return S2
    return S3 if epoch > max(now[1:]) else ""


def remembering(config: Config, pod: Pod) -> Pod:
    """Store the epoch of the starting worker where a later process reads it."""
    return pod._replace(memory=pod.worker[0]) if "lost" in config.kinds else pod


def reached(config: Config, pod: Pod) -> int:
    """Return the S that this Pod's files prove."""
    return max(pod.memory, pod.annotation - 1, 0) if "lost" in config.kinds else 0


def without_agent(pod: Pod) -> Pod:
    """End the agent's process; its PATCH on the wire may still be stored."""
    return pod._replace(machine=None, orphan=pod.request or pod.orphan, request=0, reply=0, asked=False, started=None)


def running_epochs(slot: SlotState, *, supervisor: bool) -> int:
    """Return the epochs whose workers run in this slot, as a bit mask.

    A supervisor's worker counts until its tree is gone.
    """
    mask = 0
    for pod in (slot.live, slot.leaving):
        if pod is not None and (pod.worker[1] == RUNNING or (supervisor and pod.worker != NO_WORKER)):
            mask |= 1 << pod.worker[0]
    return mask
