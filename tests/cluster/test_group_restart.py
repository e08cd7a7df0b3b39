"""Whole group restarts: real kube-apiserver, real Job controller, our controller and our agents as processes."""

from __future__ import annotations

import pytest

from inplace.common.kube.client import MERGE_PATCH
from inplace.common.kube.resources import PODS
from inplace.common.wire import names as wire
from inplace.common.wire.phases import RestartPhase, parse_phases
from testbed.control_plane import ControlPlane
from testbed.group import running_controller, running_group
from testbed.played_agent import RESTART_EXIT_CODE

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def test_a_killed_agent_restarts_the_whole_group_in_place(
    full_control_plane: ControlPlane, full_namespace: str
) -> None:
    """After one failure all Pods meet at epoch 2, none is recreated, and other agents exit with the restart code."""
    plane, namespace = full_control_plane, full_namespace
    async with running_group(plane, namespace) as group, running_controller(plane, namespace):
        await group.trains(1)
        uids = {pod.uid for pod in group.pods.values()}
        first, *others = group.pods.values()
        first.kill()
        await group.trains(2)

        assert await group.epochs() == (2, 1)
        assert {pod.uid for pod in group.pods.values()} == uids
        assert [pod.exits for pod in others] == [[RESTART_EXIT_CODE]] * len(others)
        assert [pod.lifts for pod in group.pods.values()] == [[1, 2]] * len(group.pods)


async def test_status_and_annotations_carry_both_encodings(
    full_control_plane: ControlPlane, full_namespace: str
) -> None:
    """After a restart status and annotations have upstream's attempts, the seed's epochs, and the phases."""
    plane, namespace = full_control_plane, full_namespace
    async with running_group(plane, namespace, pods=2) as group, running_controller(plane, namespace):
        await group.trains(1)
        await group.restarts(2)

        status = (await group.jobset())["status"]
        assert {key: status[key] for key in wire.status_of_epochs(2, 1)} == wire.status_of_epochs(2, 1)
        for pod in (await group.client.list(PODS, namespace))["items"]:
            annotations = pod["metadata"]["annotations"]
            assert (annotations[wire.EPOCH], annotations[wire.ATTEMPT]) == ("2", "1")
            assert RestartPhase.VIEW in parse_phases(annotations[wire.PHASES])


async def test_five_restarts_in_a_row_and_all_agents_at_once(
    full_control_plane: ControlPlane, full_namespace: str
) -> None:
    """Five failures in a row, the last one of all Pods together, cost one epoch each."""
    plane, namespace = full_control_plane, full_namespace
    async with running_group(plane, namespace) as group, running_controller(plane, namespace):
        for epoch in range(1, 6):
            await group.trains(epoch)
            victims = list(group.pods.values())[: len(group.pods) if epoch == 5 else 1]
            for pod in victims:
                pod.kill()
        await group.trains(6)

        assert [pod.lifts for pod in group.pods.values()] == [[1, 2, 3, 4, 5, 6]] * len(group.pods)


async def test_a_group_restart_survives_the_controller(full_control_plane: ControlPlane, full_namespace: str) -> None:
    """A failure while no controller runs waits at the barrier; the next controller finishes the restart."""
    plane, namespace = full_control_plane, full_namespace
    async with running_group(plane, namespace) as group:
        async with running_controller(plane, namespace):
            await group.trains(1)
        first, *others = group.pods.values()
        first.kill()

        async def announced() -> bool:
            pod = await group.client.get(PODS, namespace, first.name)
            return wire.epoch_of_pod(pod["metadata"]["annotations"]) == 2

        await group.until(announced, "the killed agent announced epoch 2")
        assert await group.epochs() == (1, 0)
        assert [pod.exits for pod in others] == [[]] * len(others)
        async with running_controller(plane, namespace):
            await group.trains(2)


async def test_the_api_server_may_restart_in_the_middle(full_control_plane: ControlPlane, full_namespace: str) -> None:
    """An API server that goes away during a group restart delays it and changes nothing else."""
    plane, namespace = full_control_plane, full_namespace
    async with running_group(plane, namespace) as group, running_controller(plane, namespace):
        await group.trains(1)
        first = next(iter(group.pods.values()))
        await plane.stop_apiserver(kill=True)
        first.kill()
        await plane.start_apiserver()
        await group.trains(2)

        assert [pod.lifts for pod in group.pods.values()] == [[1, 2]] * len(group.pods)


async def test_a_deleted_pod_is_replaced_and_the_group_restarts(
    full_control_plane: ControlPlane, full_namespace: str
) -> None:
    """A lost Pod costs one new Pod and one epoch; the others keep theirs."""
    plane, namespace = full_control_plane, full_namespace
    async with running_group(plane, namespace) as group, running_controller(plane, namespace):
        await group.trains(1)
        first, *others = list(group.pods.values())
        await group.client.delete(PODS, namespace, first.name, grace_period_s=0)
        await group.until(lambda: len(group.pods) == 3 and group.lifted(2), "every barrier lifted at epoch 2")

        assert {pod.uid for pod in others} < {pod.uid for pod in group.pods.values()}


async def test_more_restarts_than_allowed_fail_the_jobset(
    full_control_plane: ControlPlane, full_namespace: str
) -> None:
    """After maxRestarts restarts the next failure fails the JobSet, and no barrier lifts again."""
    plane, namespace = full_control_plane, full_namespace
    async with running_group(plane, namespace, restarts_max=1) as group, running_controller(plane, namespace):
        for epoch in (1, 2):
            await group.trains(epoch)
            next(iter(group.pods.values())).kill()

        async def failed() -> bool:
            return ((await group.jobset()).get("status") or {}).get("terminalState") == "Failed"

        await group.until(failed, "the JobSet failed")
        conditions = (await group.jobset())["status"]["conditions"]
        assert [c["reason"] for c in conditions if c["type"] == "Failed"] == ["ReachedMaxRestarts"]
        assert await group.epochs() == (2, 1)


async def test_a_garbled_annotation_harms_nobody(full_control_plane: ControlPlane, full_namespace: str) -> None:
    """Garbage in one Pod's annotation stops no group, and the next group restart overwrites it."""
    plane, namespace = full_control_plane, full_namespace
    async with running_group(plane, namespace) as group, running_controller(plane, namespace):
        await group.trains(1)
        victim, other, *_ = group.pods.values()
        garbage = {"metadata": {"annotations": {wire.EPOCH: "2147483648"}}}
        await group.client.patch(PODS, namespace, victim.name, garbage, kind=MERGE_PATCH)
        other.kill()
        await group.trains(2)


async def test_upstreams_environment_works_under_our_controller(
    full_control_plane: ControlPlane, full_namespace: str
) -> None:
    """Agents with upstream's variables only, and so without a previous epoch, restart in place too."""
    plane, namespace = full_control_plane, full_namespace
    async with (
        running_group(plane, namespace, pods=2, upstream_env=True) as group,
        running_controller(plane, namespace),
    ):
        await group.trains(1)
        await group.restarts(2)

        assert await group.epochs() == (2, 1)
