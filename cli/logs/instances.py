"""
Find the container instances of a group whose logs kubelet may have. Pure.

Kubelet keeps the log of a container's present instance and of the one before. Regular containers count; a sidecar agent
prints nothing of a worker.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator

from inplace.cli.group.pod_facts import Container, PodFact, Running, Terminated
from inplace.common.agent_command import agent_arguments
from inplace.common.bare.record import record
from inplace.common.jobset.causes import unix_time
from inplace.common.jobset.jobset import parse_jobset
from inplace.common.kube.resources import KubeObject
from inplace.common.protocol.errors import RemoteProtocolError

Ranks = Callable[[PodFact], int | None]


@record
class Instance:
    """One run of one container.

    Args:
        rank: of its Pod; None where its labels do not say.
        container: its name.
        is_alone: its Pod has no other container that counts.
        number: how often the container was restarted before.
        is_previous: kubelet calls it the previous one.
        has_marks: a guard writes marks into its log.
        agent: the container of its guard's agent; "" if the agent is none of its own.
        epoch: at its beginning, where it has no marks, and of all that no mark says, where the present one has lost
            them.
        began_s, ended_s: Unix time, whole seconds, by its node's clock; None if not known or not over.
    """

    uid: str
    pod: str
    rank: int | None
    container: str
    is_alone: bool
    number: int
    is_previous: bool
    has_marks: bool
    agent: str
    epoch: int | None
    began_s: float | None
    ended_s: float | None

    @property
    def key(self) -> tuple[str, str, int]:
        """Return what no other instance has."""
        return self.uid, self.container, self.number

    @property
    def name(self) -> str:
        """Return the Pod's name, with the container's where the Pod has several."""
        return self.pod if self.is_alone else f"{self.pod}/{self.container}"


def ranks_of(raw: KubeObject) -> tuple[Ranks, int]:
    """Return how each Pod gets its rank, and how many there are; 0 where the spec cannot be read.

    A Pod's rank is its place among the Pods of the JobSet, in the spec's order. In a group with spares it is the one
    that it plays in the newest epoch; a spare has none.
    """
    try:
        jobset = parse_jobset(raw)
    except RemoteProtocolError:
        return (lambda _: None), 0
    sizes = {job.name: job.parallelism for job in jobset.replicated_jobs}
    members = {
        name: (ranks, {unit: rank for rank, unit in enumerate(ranks.slots())})
        for name, scope in jobset.scopes.items()
        if scope.has_spares and (ranks := scope.ranks) is not None
    }

    def rank(pod: PodFact) -> int | None:
        slot = pod.slot
        if slot is None or slot.replicated_job not in sizes:
            return None
        first = jobset.numbers.first_slot[slot.replicated_job]
        if (known := members.get(slot.replicated_job)) is not None:  # this replicatedJob is the scope
            ranks, played = known
            unit = played.get(ranks.unit_of(slot.job_index, slot.completion_index))
            return unit if unit is None or not ranks.pods else unit * ranks.pods + slot.completion_index
        return first + slot.job_index * sizes[slot.replicated_job] + slot.completion_index

    return rank, jobset.shape.size


def has_spares(raw: KubeObject) -> bool:
    """Say whether some Pods of a JobSet may have no rank: spares."""
    try:
        return any(scope.has_spares for scope in parse_jobset(raw).scopes.values())
    except RemoteProtocolError:
        return False


def instances_of(pods: Iterable[PodFact], rank: Ranks, chosen: Collection[range] = ()) -> list[Instance]:
    """Return the instances of Pods, those of the lowest ranks first.

    Args:
        pods: whole, as the API server has them.
        rank: gives a Pod its rank.
        chosen: ranks; empty is all.
    """
    found = [(rank(pod), pod) for pod in pods]
    if chosen:
        found = [(number, pod) for number, pod in found if number is not None and any(number in one for one in chosen)]
    found.sort(key=lambda one: (one[0] is None, one[0] or 0, one[1].name))
    return [instance for number, pod in found for instance in _of_pod(pod, number)]


def _of_pod(pod: PodFact, rank: int | None) -> Iterator[Instance]:
    for container in pod.workers:
        if (last := container.last_state.terminated) is not None:
            yield _instance(pod, rank, container, last, previous=True)
        if (present := container.state.running or container.state.terminated) is not None:
            yield _instance(pod, rank, container, present)


def _instance(
    pod: PodFact, rank: int | None, container: Container, run: Running | Terminated, *, previous: bool = False
) -> Instance:
    words = next(
        ((*(one.command or ()), *(one.args or ())) for one in pod.spec.containers or () if one.name == container.name),
        (),
    )
    # Without a guard each instance has an epoch of its own: kubelet starts a worker after the lift.
    epoch = pod.epoch - 1 if previous else pod.epoch
    return Instance(
        pod.metadata.uid,
        pod.name,
        rank,
        container.name,
        len(pod.workers) == 1,
        container.restart_count - (1 if previous else 0),
        previous,
        agent_arguments(words) is not None,
        next((one.name for one in pod.spec.init_containers or () if agent_arguments(one.command or ()) == []), ""),
        epoch if epoch > 0 else None,
        unix_time(run.started_at),
        unix_time(run.finished_at) if isinstance(run, Terminated) else None,
    )
