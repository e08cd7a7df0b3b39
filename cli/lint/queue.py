"""Say what a queue does not count: it reads the JobSet, and the controller adds the agent to the Jobs. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from inplace.common.injection.container_resources import is_pod_guaranteed, users_own
from inplace.common.injection.finding import Finding
from inplace.common.injection.pod_cost import agents_amounts, listed
from inplace.common.injection.pod_roles import Member
from inplace.common.kube.resources import KubeObject
from inplace.common.wire import names as wire


def check_queue(jobset: KubeObject, group: Sequence[Member]) -> Iterator[Finding]:
    """Yield how much the agents of Guaranteed Pods ask for; beside other workers 10m and 32Mi are no news.

    Args:
        jobset: with agents that the controller adds.
        group: its replicatedJobs that restart in place.
    """
    labels = (jobset.get("metadata") or {}).get("labels") or {}
    counted = [member for member in group if is_pod_guaranteed(member, users_own(member))]
    if wire.QUEUE_NAME not in labels or not counted:
        return
    each = {name: amount for name, amount in agents_amounts(counted[0]).items() if name.startswith("requests.")}
    pods = sum(member.pods for member in counted)
    in_all = {name: amount * pods for name, amount in each.items()}
    yield Finding(
        "queue-uncounted",
        f'metadata.labels["{wire.QUEUE_NAME}"]',
        f"agents that the queue does not count: {listed(each)} in each of {pods:,} Pods, {listed(in_all)} in all",
        "as much room beside the workers on their nodes",
        f"leave it, set {wire.AGENT_RESOURCES}, or let the queue count agents that `inplace inject` writes",
    )
