"""
Which nodes the replacements of a JobSet's Pods avoid: the annotation that asks for it, and what the status remembers.

    metadata.annotations["inplace.dev/nodes"]: "2" or "failures=2,within=3600,percent=10"

A node is bad for 3600 s after the 2nd worker that failed first on it within 3600 s, or after one failed check; at most
10 % of the nodes in use are avoided. `status.nodeFailures` has an entry for each node, the one that failed last at the
end. Another JobSet's entries are its own. Without the annotation, and with `mode=observe`, nothing is remembered: see
`common.jobset.observing`. Pure. docs/adr/0024
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

from msgspec.structs import replace

from inplace.common.bare.record import record
from inplace.common.jobset.causes import Failure, unix_time
from inplace.common.jobset.settings import MODE, NODES, OBSERVE
from inplace.common.jobset.status_record import StatusRecord
from inplace.common.kube.resources import KubeObject
from inplace.common.wire import names as wire

FAILURES: Final = 2  # where nothing is said
WINDOW_S: Final = 3600
PERCENT: Final = 10
NODES_MAX: Final = 32  # that the status remembers: with all their times and a sentence each some 20 kB, at worst 60
WHY_CHARS_MAX: Final = 256
AVOIDED: Final = "NodeAvoided"  # reasons of Events
TAKEN_BACK: Final = "NodeVerdictTakenBack"
WEIGHT: Final = 100  # of the preference; the largest there is
_PREFERRED: Final = "preferredDuringSchedulingIgnoredDuringExecution"


@record
class BadNodes:
    """When a node is bad.

    Args:
        failures: so many workers failed first on it, each in another epoch, 1 to 8.
        window_s: within so many seconds, and so long it is avoided.
        percent: so much of the nodes in use is avoided at most, but always one.
        is_observed: it is told of, and no spare takes over.
    """

    failures: int
    window_s: int
    percent: int = PERCENT
    is_observed: bool = False

    def nodes_max(self, in_use: int) -> int:
        """Return how many nodes may be avoided."""
        return max(1, in_use * self.percent // 100)

    def __str__(self) -> str:
        """Say it in a sentence."""
        times = "the first worker to fail once" if self.failures == 1 else f"the first to fail {self.failures} times"
        return (
            f"a node whose worker was {times} within {self.window_s} s, or whose check failed, is avoided by replaced "
            f"pods for {self.window_s} s; at most {self.percent} % of the nodes in use, but always one"
        )


class NodeRecord(StatusRecord, frozen=True):
    """What the status remembers of one node: an entry of status.nodeFailures.

    Args:
        failed_at: when a worker on it failed first, by the controller's clock, the newest last.
        avoided_since: when it was last found bad, by the controller's clock; "" if it is not avoided.
        check_ended_at: when its check failed last, by the node's clock; one Pod's failure is counted once.
        pod: the Pod of the newest failure.
        job_uid: UID of its Job.
        why: that failure in words.
    """

    node: str = ""
    failed_at: tuple[str, ...] = ()
    avoided_since: str = ""
    check_ended_at: str = ""
    pod: str = ""
    job_uid: str = ""
    why: str = ""

    @property
    def is_bad(self) -> bool:
        """Say whether a node is avoided, of a record without old times."""
        return bool(self.avoided_since)


Records = tuple[NodeRecord, ...]


@record
class NodeSigns:
    """What a controller saw of the nodes of one JobSet since it looks.

    Args:
        in_use: how many nodes its Pods have; 0 where nobody asked.
        unfit: the newest failed check of each node.
        returned: nodes to which the scheduler brought a Pod that was to avoid them.
    """

    in_use: int = 0
    unfit: tuple[Failure, ...] = ()
    returned: frozenset[str] = frozenset()


NO_SIGNS: Final = NodeSigns()


def bad_nodes_of(annotations: Mapping[str, Any]) -> BadNodes | None:
    """Return when a node is bad, and Pods leave it; None where nobody asks."""
    given = NODES.read_or_default(annotations)
    return _policy(given) if given.get("failures") and given.get(MODE.name) != OBSERVE else None


def suspects_of(annotations: Mapping[str, Any]) -> BadNodes | None:
    """Return when a node is told of as bad, and Pods stay; None where they leave it, or it is switched off."""
    given = NODES.read_or_default(annotations)
    is_off = given.get("failures") == 0 or bad_nodes_of(annotations) is not None
    return None if is_off else _policy({"failures": FAILURES} | given)


def _policy(given: Mapping[str, Any]) -> BadNodes:
    is_observed = given.get(MODE.name) == OBSERVE
    return BadNodes(given["failures"], given.get("within", WINDOW_S), given.get("percent", PERCENT), is_observed)


def records_of(status: Mapping[str, Any], policy: BadNodes, now: str) -> Records:
    """Read status.nodeFailures, without times older than the window, and without nodes that have none left.

    A time in the future counts as now: after a clock that jumped back nothing is forgotten early.
    """
    records = (_recent(NodeRecord.read(entry), policy, now) for entry in status.get(wire.NODE_FAILURES) or ())
    return tuple(record for record in records if _says_something(record))


def after_failure(records: Records, policy: BadNodes, failure: Failure, now: str, job_uid: str = "") -> Records:
    """Return the records after a worker failed first on a node; the Pod's Job has this UID, "" if that is not known."""
    old = find(records, failure.node)
    times = (*old.failed_at, now)[-policy.failures :]
    since = now if len(times) == policy.failures else old.avoided_since
    failed = replace(old, failed_at=times, avoided_since=since)
    return _with(records, replace(failed, pod=failure.pod, job_uid=job_uid, why=_words(failure)))


def after_check(records: Records, policy: BadNodes, failure: Failure, now: str, job_uid: str = "") -> Records:
    """Return the records after a check failed on a node; as they were if that is old, or counted already.

    The Pod's Job has this UID, "" if that is not known.
    """
    old = find(records, failure.node)
    ended_s, now_s = unix_time(failure.finished_at), unix_time(now)
    is_old = ended_s is None or now_s is None or now_s - ended_s > policy.window_s
    if is_old or (ended_s or 0.0) <= (unix_time(old.check_ended_at) or 0.0):
        return records
    found = replace(old, avoided_since=now, check_ended_at=failure.finished_at)
    return _with(records, replace(found, pod=failure.pod, job_uid=job_uid, why=_words(failure)))


def forgiven(records: Records, nodes: Collection[str]) -> Records:
    """Return the records without the failures of these nodes; a check that was counted is not counted again."""
    innocent = {node: NodeRecord(node, check_ended_at=find(records, node).check_ended_at) for node in nodes}
    changed = (innocent.get(record.node, record) for record in records)
    return tuple(record for record in changed if _says_something(record))


def find(records: Records, node: str) -> NodeRecord:
    """Return the record of a node, an empty one if there is none."""
    return next((record for record in records if record.node == node), NodeRecord(node))


def avoided(records: Records, policy: BadNodes, in_use: int) -> tuple[str, ...]:
    """Return the nodes that are avoided: the bad ones, of too many those that failed last."""
    bad = [record.node for record in records if record.is_bad]
    return tuple(bad[-policy.nodes_max(in_use) :])


def affinity_avoiding(
    affinity: Mapping[str, Any] | None, nodes: Sequence[str], topology: str = "", domains: Sequence[str] = ()
) -> KubeObject:
    """Return a Pod's affinity with a preference for all other nodes, and for other domains; what was there stays.

    A field selector has one value, so each node is an expression of its own. `topology` is the node label whose values
    are the domains.
    """
    fields = [{"key": "metadata.name", "operator": "NotIn", "values": [node]} for node in nodes]
    terms: list[KubeObject] = [{"weight": WEIGHT, "preference": {"matchFields": fields}}]
    if domains:
        elsewhere = {"key": topology, "operator": "NotIn", "values": list(domains)}
        terms.append({"weight": WEIGHT, "preference": {"matchExpressions": [elsewhere]}})
    old = dict(affinity or {})
    of_nodes = dict(old.get("nodeAffinity") or {})
    of_nodes[_PREFERRED] = [*(of_nodes.get(_PREFERRED) or ()), *terms]
    return old | {"nodeAffinity": of_nodes}


def avoid_in_template(pod_spec: KubeObject) -> None:
    """Let the Pods of a template wait until the controller says which nodes they avoid."""
    pod_spec["schedulingGates"] = [*(pod_spec.get("schedulingGates") or ()), {"name": wire.AVOIDANCE_GATE}]


def _with(records: Records, record: NodeRecord) -> Records:
    """Return the records with this one at their end; the oldest of too many are forgotten."""
    others = (other for other in records if other.node != record.node)
    return (*others, record)[-NODES_MAX:]


def _says_something(record: NodeRecord) -> bool:
    return bool(record.node and (record.failed_at or record.avoided_since or record.check_ended_at))


def _recent(record: NodeRecord, policy: BadNodes, now: str) -> NodeRecord:
    now_s = unix_time(now) or 0.0

    def counts(text: str) -> bool:
        at_s = unix_time(text)
        return at_s is not None and now_s - at_s <= policy.window_s

    record = replace(record, failed_at=tuple(text for text in record.failed_at if counts(text)))
    if not counts(record.avoided_since):
        record = replace(record, avoided_since="")
    # By the node's own clock: as long as such a failure would be counted, see `after_check`.
    return record if counts(record.check_ended_at) else replace(record, check_ended_at="")


def _words(failure: Failure) -> str:
    return str(replace(failure, node=""))[:WHY_CHARS_MAX]
