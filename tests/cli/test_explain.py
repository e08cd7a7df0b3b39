"""`inplace explain` names the cause: each way for a group to be in trouble, on the simulated cluster."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any

from cli.group_state import Phase
from simulator.cluster import virtual_time
from tests.cli.scenes import all_work, explained, seen, status, text_of, training, until


def run(scene: Coroutine[Any, Any, None]) -> None:
    """Play one scene under virtual time."""
    virtual_time.run(scene)


def test_a_group_that_trains_has_no_cause() -> None:
    """And says so."""

    async def scene() -> None:
        async with training() as cluster:
            explanation = await explained(cluster)
            assert explanation.causes == ()
            assert "all 4 Pods are at epoch 1" in explanation.headline
            assert "Nothing keeps it from training" in text_of(explanation)

    run(scene())


def test_a_worker_crash_is_named() -> None:
    """After the restart: the Pod whose worker ended first, its container, exit code and the restart itself."""

    async def scene() -> None:
        async with training() as cluster:
            victim = sorted(pod["metadata"]["name"] for pod in cluster.pods())[2]
            cluster.kill_worker("default", victim)
            await until(cluster, lambda: status(cluster).get("syncedEpoch") == 2 and all_work(cluster, 4))
            explanation = await explained(cluster)
            assert explanation.causes == ()
            text = text_of(explanation)
            assert f"container worker of {victim}" in text
            assert "exit code 137" in text
            assert "1 of 10 restarts used" in text

    run(scene())


def test_a_lost_node_is_named_while_the_group_waits() -> None:
    """The Pod, its node, that the node is not ready, and that it must be deleted."""

    async def scene() -> None:
        async with training() as cluster:
            victim = cluster.pods()[0]
            node = victim["spec"]["nodeName"]
            cluster.lose_node(node)

            def lost() -> bool:
                return any(pod["status"].get("reason") == "NodeLost" for pod in cluster.pods())

            await until(cluster, lost)
            explanation = await explained(cluster)
            assert (await seen(cluster)).phase in (Phase.DEGRADED, Phase.RESTARTING)
            assert [cause.kind for cause in explanation.causes] == ["NodeLost"]
            assert explanation.causes[0].pods == (victim["metadata"]["name"],)
            text = text_of(explanation)
            assert f"node {node} is not ready" in text
            assert f"kubectl delete node {node}" in text

    run(scene())


def test_an_unschedulable_pod_is_named() -> None:
    """The replacement of a lost Pod fits nowhere: the scheduler's own words, and what to do."""

    async def scene() -> None:
        async with training() as cluster:
            victim = cluster.pods()[0]
            cluster.lose_node(victim["spec"]["nodeName"])

            def pending() -> bool:
                return any(
                    one.get("reason") == "Unschedulable"
                    for pod in cluster.pods()
                    for one in pod.get("status", {}).get("conditions") or ()
                )

            await until(cluster, pending)
            explanation = await explained(cluster)
            (cause,) = explanation.causes
            assert cause.kind == "Unschedulable"
            assert "nodes are available" in cause.text
            assert "kubectl describe pod train-workers-0-" in cause.advice
            assert "3 of 4 Pods" in explanation.headline or "without 1 of its 4 Pods" in explanation.headline

    run(scene())


def test_reaching_max_restarts_is_named() -> None:
    """Failed, with how many were allowed and which failure was the last."""

    async def scene() -> None:
        async with training(maxRestarts=1) as cluster:
            name = cluster.pods()[0]["metadata"]["name"]
            cluster.kill_worker("default", name)
            await until(cluster, lambda: status(cluster).get("syncedEpoch") == 2 and all_work(cluster, 4))
            cluster.kill_worker("default", name)
            await until(cluster, lambda: status(cluster).get("terminalState") == "Failed")
            explanation = await explained(cluster)
            (cause,) = explanation.causes
            assert cause.kind == "ReachedMaxRestarts"
            assert "maxRestarts reached: 1 restarts are allowed" in cause.text
            assert explanation.headline == "it failed"

    run(scene())
