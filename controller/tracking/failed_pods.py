"""Find the Pods that the step ReplacePod may replace, or is replacing: of each scope the one that failed first."""

from __future__ import annotations

from collections.abc import Callable

from inplace.common.jobset.escalation import pod_leaving, use_of_restart
from inplace.common.jobset.kinds import Pod
from inplace.controller.tracking.group import Group, ScopeLedger


def failed_pods(
    group: Group, pod_named: Callable[[str], Pod | None], home_of: Callable[[str], ScopeLedger | None]
) -> dict[str, Pod]:
    """Return them by scope.

    A Pod that is being replaced comes first. Else a Pod counts if its worker was seen to exit first, or is slow, and it
    still lives, unless the restart has taken another step. After a hang the Pod that told first is as
    likely healthy, and a Pod that is lost has a replacement already.

    Args:
        group: whose restarts may replace Pods.
        pod_named: finds a Pod of its namespace by name.
        home_of: finds who counts a Pod, by its UID.
    """
    found, jobset = {}, group.jobset
    for name, scope_ledger in group.ledgers.items():
        uses, epoch = jobset.escalation_uses, jobset.scopes[name].synced + 1
        leaving, use = pod_leaving(uses, name, epoch), use_of_restart(uses, name, epoch)
        cause = scope_ledger.cause
        failure = cause.failure if cause is not None and cause.is_of_the_pod else None
        candidate = failure.pod if failure is not None and use is None else ""
        pod = pod_named(leaving.pod if leaving is not None else candidate)
        if pod is None or home_of(pod.metadata.uid) is not scope_ledger:
            continue
        if leaving is not None or scope_ledger.ledger.lives(pod.metadata.uid):
            found[name] = pod
    return found
