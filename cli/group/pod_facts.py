"""
What the commands read of a Pod: a slim Struct, so that 5,000 Pods are decoded in a tenth of a second.

What a controller reads too comes from its Structs (common/jobset/kinds.py), and the commands add the fields that
explain a Pod. A Pod, its metadata and its status are Structs of their own: the controller, which keeps 5,000 of them
for weeks, cuts what the commands show. `slot_state` says what a Pod means for its slot, for the JobSet's headline.
"""

from __future__ import annotations

from collections.abc import Set
from functools import lru_cache
from typing import Final, NamedTuple

import msgspec

from inplace.common.agent_command import agent_arguments, is_guarded
from inplace.common.injection.pod_roles import Member
from inplace.common.jobset import containers, kinds
from inplace.common.jobset.blocked import Blocked, blocked
from inplace.common.jobset.containers import Waiting
from inplace.common.jobset.headline import SlotState
from inplace.common.jobset.kinds import Gate
from inplace.common.jobset.scopes import Scope
from inplace.common.kube.codec import SlimMeta, slim
from inplace.common.protocol.errors import RemoteProtocolError
from inplace.common.protocol.slot import Slot
from inplace.common.wire import names as wire
from inplace.common.wire.members import read_announcement
from inplace.common.wire.worker_failure import WorkerFailure, parse_failure

JOB_FINALIZER: Final = "batch.kubernetes.io/job-tracking"  # the Job controller's, which it removes by itself
EPOCHS_AT_ONCE: Final = 64  # that a group's Pods announced: two or three, whatever its size


class Annotations(
    msgspec.Struct,
    frozen=True,
    gc=False,
    rename={
        "epoch": wire.EPOCH,
        "attempt": wire.ATTEMPT,
        "ran": wire.RAN,
        "phases": wire.PHASES,
        "worker_failed": wire.WORKER_FAILED,
        "fenced_within": wire.FENCED_WITHIN,
        "index_failures": wire.INDEX_FAILURES,
        "index_failures_ignored": wire.INDEX_FAILURES_IGNORED,
    },
):
    """What its agent announced, and what its Job wrote."""

    epoch: str | None = None
    attempt: str | None = None
    ran: str | None = None
    phases: str | None = None
    worker_failed: str | None = None
    fenced_within: str | None = None
    index_failures: str | None = None
    index_failures_ignored: str | None = None


class Managed(msgspec.Struct, frozen=True, gc=False):
    """One entry of managedFields: the writer, and the time of its last write."""

    manager: str | None = None
    time: str | None = None
    subresource: str | None = None


class Meta(SlimMeta, rename="camel", frozen=True, gc=False):
    """Metadata."""

    labels: kinds.PodLabels | None = None
    annotations: Annotations | None = None
    managed_fields: tuple[Managed, ...] | None = None
    creation_timestamp: str | None = None
    finalizers: tuple[str, ...] | None = None


class Running(containers.Running, rename="camel", frozen=True, gc=False):
    """state.running."""

    started_at: str | None = None


class Terminated(containers.Terminated, rename="camel", frozen=True, gc=False):
    """state.terminated, or lastState's."""

    started_at: str | None = None


class State(msgspec.Struct, frozen=True, gc=False):
    """One of three, or none."""

    waiting: Waiting | None = None
    running: Running | None = None
    terminated: Terminated | None = None


class Container(msgspec.Struct, rename="camel", frozen=True, gc=False):
    """Status of a container."""

    name: str
    image: str = ""
    ready: bool = False
    started: bool | None = None
    restart_count: int = 0
    state: State = State()
    last_state: State = State()

    @property
    def blocked(self) -> Blocked | None:
        """Return why kubelet cannot start it; None where it waits for something else."""
        waiting = self.state.waiting
        return None if waiting is None else blocked(self.name, self.image, waiting.reason, waiting.message)

    @property
    def last_end(self) -> Terminated | None:
        """Return how it ended; where it runs again, how it ended before."""
        return self.state.terminated or self.last_state.terminated


class PodCondition(kinds.PodCondition, rename="camel", frozen=True, gc=False):
    """One condition."""

    last_transition_time: str | None = None


class Program(msgspec.Struct, rename="camel", frozen=True, gc=False):
    """What a container of a Pod runs."""

    name: str = ""
    command: tuple[str, ...] | None = None
    args: tuple[str, ...] | None = None
    restart_policy: str | None = None


class PodSpec(msgspec.Struct, rename="camel", frozen=True, gc=False):
    """Where it runs, and what."""

    node_name: str | None = None
    containers: tuple[Program, ...] | None = None
    init_containers: tuple[Program, ...] | None = None
    scheduling_gates: tuple[Gate, ...] | None = None


class PodStatus(msgspec.Struct, rename="camel", frozen=True, gc=False):
    """How it is."""

    phase: str | None = None
    reason: str | None = None
    message: str | None = None
    conditions: tuple[PodCondition, ...] | None = None
    init_container_statuses: tuple[Container, ...] | None = None
    container_statuses: tuple[Container, ...] | None = None


class Roles(NamedTuple):
    """Which containers of a Pod do what.

    Args:
        agent: the agent's beside the worker; "" where it is the worker's parent.
        workers: those that train; the others help. Empty where that is not known.
    """

    agent: str = ""
    workers: frozenset[str] = frozenset()


class PodFact(msgspec.Struct, frozen=True, gc=False):
    """A Pod, as far as anything here reads it."""

    metadata: Meta
    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()

    @property
    def name(self) -> str:
        return self.metadata.name

    @property
    def is_guarded(self) -> bool:
        """Say whether a guard starts and ends its worker."""
        return any(is_guarded((*(one.command or ()), *(one.args or ()))) for one in self.spec.containers or ())

    @property
    def may_have_agent(self) -> bool:
        """Say whether a container runs the agent's program; True where the containers were not read."""
        programs = (*(self.spec.init_containers or ()), *(self.spec.containers or ()))
        return not programs or any(agent_arguments(one.command or ()) is not None for one in programs)

    def program_of(self, container: str) -> str:
        """Return the program that a container starts; "" where the image says it, or it is not known."""
        programs = (*(self.spec.init_containers or ()), *(self.spec.containers or ()))
        return next((one.command[0] for one in programs if one.name == container and one.command), "")

    @property
    def epoch(self) -> int:
        """Return the epoch it announced; 0 for none, and for what is no epoch."""
        keys = self.metadata.annotations
        return _epoch_of(keys.epoch, keys.attempt) if keys is not None else 0

    @property
    def shared_step(self) -> int | None:
        """Return the newest step on shared storage that it told with that epoch; None for none."""
        told = read_announcement(self.metadata.annotations and self.metadata.annotations.ran, self.epoch)
        return None if told is None else told.saved.shared

    @property
    def slot(self) -> Slot | None:
        """Return its slot; None when its labels do not say."""
        labels = self.metadata.labels
        if labels is None or labels.replicated_job is None:
            return None
        texts = (labels.job_index or "", labels.completion_index or "0")
        if not all(text.isascii() and text.isdigit() for text in texts):
            return None
        return Slot(labels.replicated_job, int(texts[0]), int(texts[1]))

    @property
    def is_leaving(self) -> bool:
        """Say whether it is being deleted."""
        return self.metadata.deletion_timestamp is not None

    @property
    def held_by(self) -> tuple[str, ...]:
        """Return the finalizers that keep the object of a Pod that has ended and is being deleted."""
        if not self.is_leaving or self.status.phase not in ("Failed", "Succeeded"):
            return ()
        return tuple(one for one in self.metadata.finalizers or () if one != JOB_FINALIZER)

    @property
    def is_live(self) -> bool:
        """Say whether the barrier counts it."""
        return not self.is_leaving and self.status.phase not in ("Failed", "Succeeded")

    @property
    def has_ended(self) -> bool:
        """Say whether all its containers have ended for good."""
        return self.status.phase in ("Failed", "Succeeded")

    def is_spare(self, synced: int) -> bool:
        """Say whether it waits to take a rank while an epoch runs in which it has none."""
        return self.is_live and not self.is_placeless and self.epoch == synced + 1

    @property
    def is_placeless(self) -> bool:
        """Say whether it is known to have no node."""
        return self.spec.node_name is None and self.status.phase is not None

    @property
    def failure(self) -> WorkerFailure | None:
        """Return how its worker failed, as its agent told; None for nothing that can be read."""
        keys = self.metadata.annotations
        try:
            return parse_failure(keys.worker_failed) if keys is not None and keys.worker_failed is not None else None
        except RemoteProtocolError:
            return None

    @property
    def is_done(self) -> bool:
        """Say whether its workers completed."""
        return not self.is_leaving and self.status.phase == "Succeeded"

    @property
    def workers(self) -> tuple[Container, ...]:
        """Return the regular containers; a sidecar agent is none of them."""
        return self.status.container_statuses or ()

    @property
    def inits(self) -> tuple[Container, ...]:
        """Return the init containers that must end before a worker starts; sidecars are none of them."""
        sidecars = {one.name for one in self.spec.init_containers or () if one.restart_policy == "Always"}
        return tuple(one for one in self.status.init_container_statuses or () if one.name not in sidecars)

    @property
    def containers(self) -> tuple[Container, ...]:
        """Return all containers, sidecars and init containers first."""
        return (self.status.init_container_statuses or ()) + self.workers

    def is_working(self, roles: Roles) -> bool:
        """Say whether its workers were started: their containers run, and the lift has made the agent ready."""
        workers = self._training(roles)
        run = bool(workers) and all(one.state.running is not None for one in workers)
        return run and all(one.ready for one in self.containers if one.name == roles.agent)

    def has_completed(self, roles: Roles) -> bool:
        """Say whether its workers ended with exit code 0 while a helper keeps the Pod."""
        ends = [one.state.terminated for one in self._training(roles)]
        return bool(ends) and all(one is not None and one.exit_code == 0 for one in ends)

    def _training(self, roles: Roles) -> list[Container]:
        """Return the containers that train, without helpers; all of them where their names are not known."""
        named = [one for one in self.workers if one.name in roles.workers]
        return named or list(self.workers)

    def condition(self, kind: str) -> PodCondition | None:
        """Return a condition by its type."""
        return next((one for one in self.status.conditions or () if one.type == kind), None)


def roles_of(member: Member) -> Roles:
    """Return which containers of a replicatedJob's Pods do what."""
    agent = member.sidecar_agent.name if member.place == "sidecar" and member.sidecar_agent else ""
    helpers = {one.name for one in member.helpers}
    return Roles(agent, frozenset(one.name for one in member.workers if one.name not in helpers))


def slot_state(pod: PodFact, scope: Scope, roles: Roles, reporting: Set[str]) -> SlotState:
    """Return what is known of a slot with a Pod."""
    runs = scope.is_running
    if pod.is_done and runs:
        return SlotState.COMPLETED
    if not pod.is_live or pod.is_placeless:
        return SlotState.VACANT
    if pod.epoch == scope.synced + 1:
        return SlotState.WAITING
    if not runs or pod.epoch != scope.synced:
        return SlotState.PENDING
    if (failure := pod.failure) is not None and failure.epoch == scope.synced:
        return SlotState.FAILED if failure.stalled_s is None else SlotState.SILENT
    if pod.is_working(roles):
        return SlotState.STEPS if pod.name in reporting else SlotState.RUNS
    return SlotState.COMPLETED if pod.has_completed(roles) else SlotState.STARTS


@lru_cache(maxsize=EPOCHS_AT_ONCE)
def _epoch_of(epoch: str | None, attempt: str | None) -> int:
    found = {wire.EPOCH: epoch, wire.ATTEMPT: attempt}
    try:
        return wire.epoch_of_pod({key: text for key, text in found.items() if text is not None}) or 0
    except RemoteProtocolError:
        return 0


class PodsRead(NamedTuple):
    """The Pods of a JobSet as of one moment: a watch that begins at `version` tells all that came after."""

    pods: list[PodFact]
    version: str


class ListMeta(msgspec.Struct, frozen=True, rename={"go_on": "continue", "resource_version": "resourceVersion"}):
    """Metadata of a list."""

    go_on: str = ""
    resource_version: str = ""


class PodList(msgspec.Struct, frozen=True):
    """A page of a list, decoded in one go."""

    metadata: ListMeta = ListMeta()
    items: list[PodFact] | None = None


POD_CODEC: Final = slim(PodFact)
POD_LIST: Final = msgspec.json.Decoder(PodList)
