"""
What a controller must do: the suite plays the Pods' agents, and looks at the status.

Source: kubernetes-sigs/jobset keps/467-in-place-restart. `CASES` has the cases in their order; a docstring says what is
required.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Final

from conformance.group import ATTEMPT, HOLD, JOBSET_NAME, CaseFailedError, Group, pod_spec
from inplace.common.kube.resources import PODS


async def barrier_waits_for_all(group: Group) -> None:
    """No attempt is current before every Pod has announced it."""
    *others, last = await group.create()
    await group.announce(0, *others)
    await group.stays(current=None, previous=None)
    await group.announce(0, last)
    await group.reaches(current=0)


async def one_failure_restarts_all(group: Group) -> None:
    """A Pod that announces the next attempt makes the old one the previous one; all there: it is current."""
    first, *others = await group.formed()
    await group.announce(1, first)
    await group.reaches(current=0, previous=0)
    await group.announce(1, *others)
    await group.reaches(current=1, previous=0)


async def two_failures_are_one_restart(group: Group) -> None:
    """Pods that fail together cost one restart."""
    first, second, *others = await group.formed()
    await group.announce(1, first, second)
    await group.reaches(current=0, previous=0)
    await group.announce(1, *others)
    await group.reaches(current=1)
    await group.stays(current=1, previous=0)


async def a_straggler_is_waited_for(group: Group) -> None:
    """While one Pod is behind, the next attempt is not current."""
    *others, last = await group.formed()
    await group.announce(1, *others)
    await group.reaches(previous=0)
    await group.stays(current=0, previous=0)
    await group.announce(1, last)
    await group.reaches(current=1)


async def a_failure_in_a_restart(group: Group) -> None:
    """A Pod that fails again before all are back announces the same attempt, and costs nothing more."""
    first, *others = await group.formed()
    await group.announce(1, first)
    await group.reaches(current=0, previous=0)
    await group.announce(1, first)
    await group.stays(current=0, previous=0)
    await group.announce(1, *others)
    await group.reaches(current=1)
    await group.stays(current=1, previous=0)


async def a_lost_pod_restarts_all(group: Group) -> None:
    """A Pod that is replaced announces the next attempt as any other."""
    lost, *others = await group.formed()
    uids = await group.uids(lost)
    await group.client.delete(PODS, group.namespace, lost, grace_period_s=0)
    (new,) = set(await group.pods(but=uids)) - set(others)
    await group.announce(1, new)
    await group.reaches(previous=0)
    await group.announce(1, *others)
    await group.reaches(current=1)


async def attempts_do_not_go_back(group: Group) -> None:
    """A late write of an old announcement takes no attempt back."""
    pods = await group.formed()
    await group.announce(1, *pods)
    await group.reaches(current=1, previous=0)
    await group.announce(0, pods[0])
    await group.stays(current=1, previous=0)


async def restarts_are_no_recreations(group: Group) -> None:
    """A restart in place does not change status.restarts, and no Job is made again."""
    pods = await group.formed()
    before, uid = (await group.status()).get("restarts"), await group.job_uid()
    await group.announce(1, *pods)
    await group.reaches(current=1)
    after = (await group.status()).get("restarts")
    if after != before or await group.job_uid() != uid:
        raise CaseFailedError(f"expected status.restarts {before} and the same Job, saw {after}, or another Job")


async def restarts_are_bounded(group: Group) -> None:
    """More attempts than maxRestarts fail the JobSet with the reason ReachedMaxRestarts."""
    pods = await group.formed(restarts_max=1)
    await group.announce(1, *pods)
    await group.reaches(current=1)
    await group.announce(2, pods[0])
    reason = (await group.condition("Failed")).get("reason")
    if reason != "ReachedMaxRestarts":
        raise CaseFailedError(f"expected the reason ReachedMaxRestarts, saw {reason}")


async def a_foreign_pod_does_not_count(group: Group) -> None:
    """A Pod with the JobSet's label that no Job of it owns changes nothing."""
    await group.formed()
    name = f"{group.name}-foreign"
    metadata = {"name": name, "labels": {JOBSET_NAME: group.name}, "annotations": {ATTEMPT: "5"}}
    await group.client.create(PODS, group.namespace, {"metadata": metadata, "spec": pod_spec()})
    try:
        await group.stays(current=0, previous=None)
    finally:
        await group.client.delete(PODS, group.namespace, name, grace_period_s=0)


async def a_namesakes_pods_do_not_count(group: Group) -> None:
    """A Pod of a deleted JobSet of the same name, which is still there, changes nothing for the new one."""
    pods = await group.formed()
    old, uids = pods[0], await group.uids(*pods)
    await group.announce(1, *pods)
    await group.reaches(current=1)
    await group.client.patch(PODS, group.namespace, old, {"metadata": {"finalizers": HOLD}})
    await group.delete()
    try:
        await group.gone()
        again = await group.create(but=uids)
        await group.announce(0, *again)
        await group.reaches(current=0)
        await group.stays(current=0, previous=None)
    finally:
        await group.client.patch(PODS, group.namespace, old, {"metadata": {"finalizers": None}})


async def garbage_of_one_pod_stops_nobody(group: Group) -> None:
    """An annotation that is no number does not keep the other Pods' failures from being seen."""
    first, second, *others = await group.formed()
    await group.announce("garbage", first)
    await group.announce(1, second)
    await group.reaches(previous=0)
    await group.announce(1, first, *others)
    await group.reaches(current=1)


CASES: Final[Mapping[str, Callable[[Group], Awaitable[None]]]] = {
    case.__name__.replace("_", "-"): case
    for case in (
        barrier_waits_for_all,
        one_failure_restarts_all,
        two_failures_are_one_restart,
        a_straggler_is_waited_for,
        a_failure_in_a_restart,
        a_lost_pod_restarts_all,
        attempts_do_not_go_back,
        restarts_are_no_recreations,
        restarts_are_bounded,
        a_foreign_pod_does_not_count,
        a_namesakes_pods_do_not_count,
        garbage_of_one_pod_stops_nobody,
    )
}
