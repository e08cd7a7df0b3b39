"""The planner's input: one JobSet, its Jobs, and the decisions of its ledgers; immutable."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from inplace.common.jobset.bad_nodes import NO_SIGNS, NodeSigns
from inplace.common.jobset.blocked import BlockedCause
from inplace.common.jobset.causes import Cause, Failure
from inplace.common.jobset.conditions import BEFORE_JOINING
from inplace.common.jobset.furthest_behind import FurthestBehind
from inplace.common.jobset.jobset import JobSet
from inplace.common.jobset.kinds import Job, PersistentVolumeClaim, Pod
from inplace.common.jobset.marked_nodes import MarkedPod
from inplace.common.jobset.notices import GroupNotice
from inplace.common.jobset.pod_groups import UNKNOWN, SchedulingObjects
from inplace.common.jobset.service import Service
from inplace.common.jobset.slow_ranks import PodWork
from inplace.common.protocol.decision import Decision


@dataclass(frozen=True, slots=True)
class NeverJoined:
    """A slot whose Pods failed by themselves before they joined their group.

    Args:
        count: how often.
        failure: the newest end.
        stays: it is one Pod, whose containers started again.
    """

    count: int
    failure: Failure
    stays: bool = False

    def __str__(self) -> str:
        """Say it in one line."""
        who = "the containers of one pod" if self.stays else "pods of one slot"
        times = f"{who} ended {self.count} times" if self.stays else f"{self.count} {who} ended"
        return f"{times} {BEFORE_JOINING}: {self.failure}"


@dataclass(frozen=True, slots=True)
class Observed:
    """The input of `plan`.

    Args:
        jobs: by name, every Job that this JobSet owns (by UID), terminating ones included.
        service: the one of the subdomain's name, ours or another's.
        claims: by name, every PersistentVolumeClaim that has a name of ours, also another owner's.
        now: RFC 3339, for transition times.
        pods: by name of their Job; only where they are placed exclusively.
        scheduling_objects: the Workload and the PodGroups that it owns, where the API server serves them.
        domains: (node, label) -> value, for the nodes of leaders whose followers wait, and for bad ones that leaders
            are to avoid.
        asked_domains: by UID, the domain that a Pod asks for which the scheduler has no node for; "" for any.
        decisions: by scope, what its ledger says about epochs; empty where groups do not restart in place.
        done: the scopes with spares whose members have all completed.
        exchanges: by scope, why it restarts now so that spares become members, in words.
        causes: by scope, the first sign of its restart, where there is one.
        barriers: by scope, the barriers that wait.
        silent: by scope, who was silent first in the epoch that ended, where Pods told.
        works: by scope, how long ranks worked on a step in the epoch that ended, where Pods told.
        failed_pods: by scope, the Pod that failed first and lives, or that is being replaced.
        marked: by scope, the Pods that are to leave marked nodes before its next epoch begins.
        spares: by scope, how many Pods could take a member's rank.
        bad_spares: spares that failed as members on bad nodes.
        asking: by scope, for how many seconds its next epoch waits for the answer whether a Pod leaves.
        never_joined: the slot whose Pods failed most often before they joined; None where none did.
        now_micro: as `now`, with microseconds.
        blocked: why kubelet cannot start containers of its Pods, most Pods first.
        blocked_s: since how many seconds some Pod is blocked.
        reported_s: how many seconds ago the conditions were written; None before the first write.
        notices: what Pods tell of their workers, in epochs that may be over.
        noticed_s: how many seconds ago the list of them was written; None before the first write.
        gated: Pods that wait until it is said which nodes they avoid.
        node_signs: what was seen of the nodes.
        index_failures: Pods that joined, and that their Jobs would replace late because their indexes failed before.
        matches: by UID of a failed Job, the first rule of the failure policy that matches it; see `Matches`.
        forgets_requests: the status drops the ids of requests: the definition is older than the field.
        accounts: (replicatedJob, ServiceAccount) of the Pods that were admitted and had not announced yet.
        adds_agents: the controller adds the agent to the Pods of groups that restart in place.
        agents_by_default: also where the JobSet says nothing.
        taints_nodes: the controller may taint a bad node, so that a queue moves the Pods that it pinned to it.
    """

    jobset: JobSet
    now: str
    jobs: Mapping[str, Job] = field(default_factory=dict)
    service: Service | None = None
    claims: Mapping[str, PersistentVolumeClaim] = field(default_factory=dict)
    decisions: Mapping[str, Decision] = field(default_factory=dict)
    done: Collection[str] = ()
    exchanges: Mapping[str, str] = field(default_factory=dict)
    pods: Mapping[str, Sequence[Pod]] = field(default_factory=dict)
    scheduling_objects: SchedulingObjects = UNKNOWN
    domains: Mapping[tuple[str, str], str] = field(default_factory=dict)
    asked_domains: Mapping[str, str] = field(default_factory=dict)
    causes: Mapping[str, Cause] = field(default_factory=dict)
    barriers: Mapping[str, WaitingBarrier] = field(default_factory=dict)
    silent: Mapping[str, FurthestBehind] = field(default_factory=dict)
    works: Mapping[str, Sequence[PodWork]] = field(default_factory=dict)
    failed_pods: Mapping[str, Pod] = field(default_factory=dict)
    marked: Mapping[str, Sequence[MarkedPod]] = field(default_factory=dict)
    spares: Mapping[str, int] = field(default_factory=dict)
    bad_spares: Sequence[Pod] = ()
    asking: Mapping[str, float] = field(default_factory=dict)
    never_joined: NeverJoined | None = None
    now_micro: str = ""
    gated: Sequence[Pod] = ()
    node_signs: NodeSigns = NO_SIGNS
    index_failures: Sequence[Pod] = ()
    matches: Mapping[str, int | None] = field(default_factory=dict)
    forgets_requests: bool = False
    accounts: Collection[tuple[str, str]] = ()
    adds_agents: bool = False
    agents_by_default: bool = True
    taints_nodes: bool = False
    blocked: Sequence[BlockedCause] = ()
    blocked_s: float = 0.0
    reported_s: float | None = None
    notices: Sequence[GroupNotice] = ()
    noticed_s: float | None = None


# A barrier that waits, with the slots that it waits for, as the planner reads it.
PATIENCE_S: Final = 15.0  # a restart takes up to 10 s, and says nothing of itself meanwhile
NAMES_MAX: Final = 10  # missing Pods that are named


@dataclass(frozen=True, slots=True)
class Missing:
    """One slot that a barrier waits for.

    Args:
        job: name of its Job.
        index: its completion index.
        why: what is known of it, in words.
        pod: the one in the slot; None if there is none, or more.
    """

    job: str
    index: int
    why: str
    pod: Pod | None = None

    def __str__(self) -> str:
        """Return the Pod's name without its random end, and why it is not there."""
        return f"{self.job}-{self.index} ({self.why})"


@dataclass(frozen=True, slots=True)
class WaitingBarrier:
    """A barrier that waits.

    Args:
        epoch: at which Pods meet, or meet again.
        arrived: slots that are there.
        expected: N.
        waited_s: for how long it has waited.
        missing: the first slots that it waits for; none while they are not needed.
        in_the_way: names of Pods that hold it up beside those that are missing, by reason.
        runs: the epoch has begun, and lost a Pod.
        deadline_in_s: how long until its deadline is over; None when it has none.
        late: names of the Jobs that exist and have missing slots, when the deadline is over; else empty.
    """

    epoch: int
    arrived: int
    expected: int
    waited_s: float
    missing: tuple[Missing, ...] = ()
    in_the_way: Mapping[str, Sequence[str]] = field(default_factory=dict)
    runs: bool = False
    deadline_in_s: float | None = None
    late: frozenset[str] = frozenset()

    @property
    def is_late(self) -> bool:
        """Say whether its deadline is over."""
        return self.deadline_in_s == 0.0

    @property
    def is_worth_telling(self) -> bool:
        """Say whether it has waited long enough to be told of, by our measure or by its own."""
        return self.waited_s >= PATIENCE_S or self.is_late
