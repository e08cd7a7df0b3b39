"""The founding document's failure policy on a real node: the effect of each exit code X, Y, Z and 0."""

from __future__ import annotations

import pytest

from inplace.common.agent_command import is_guarded
from inplace.common.kube.resources import KubeObject
from testbed.node.cluster import Cluster
from testbed.node.group import running_group

pytestmark = pytest.mark.asyncio(loop_scope="session")

Y = 10
"""Y: a fatal error; the JobSet fails, also with restarts left."""

Z = 11
"""Z: an error that a new Pod can cure; this Pod fails and its Job makes another."""


def with_failure_policy(jobset: KubeObject) -> None:
    """Let the worker's Y fail the JobSet and its Z the Pod; other codes except 0 restart in place, with X = 88.

    The document's action Terminate does not exist (yet): codes that no rule names end the container for good, and with
    restartPolicy Never the Pod.
    """
    jobset["spec"]["failurePolicy"]["rules"] = [
        {"name": "unrecoverable", "action": "FailJobSet", "onJobFailureReasons": ["PodFailurePolicy"]}
    ]
    job = jobset["spec"]["replicatedJobs"][0]["template"]["spec"]
    on = {"containerName": "worker", "operator": "In", "values": [Y]}
    job["podFailurePolicy"] = {"rules": [{"action": "FailJob", "onExitCodes": on}]}
    (worker,) = job["template"]["spec"]["containers"]
    command = worker["command"]
    command.insert(command.index("--"), f"--fail-on={Y},{Z}")
    if is_guarded(command):
        worker["restartPolicyRules"][0]["exitCodes"] = {"operator": "NotIn", "values": [0, Y, Z]}


@pytest.mark.long
async def test_the_failure_policy_of_the_founding_document(cluster: Cluster, mode: str) -> None:
    """Any code: in place, which is X of every agent; Z: one Pod anew, the others in place; Y: the JobSet fails."""
    async with running_group(cluster, mode, change=with_failure_policy) as group:
        await group.until_runs(1)
        before = group.uids()
        group.order(group.pods()[0], "exit 3")
        await group.until_runs(2)
        assert group.uids() == before

        failing = group.pods()[1]
        group.expect_lost([failing])
        group.order(failing, f"exit {Z}")
        await group.until_runs(3)
        assert before < group.uids()
        assert group.broken() == []

        (last, *_) = (pod for pod in group.pods() if pod["status"]["phase"] == "Running")
        group.expect_lost(group.pods())
        group.order(last, f"exit {Y}")
        await group.until_ended("Failed")
        assert group.epoch == 3
        assert group.broken() == []


async def test_workers_that_end_with_zero_complete_the_jobset(cluster: Cluster, mode: str) -> None:
    """Exit code 0 of every worker is success: no restart, and the JobSet is Completed."""
    async with running_group(cluster, mode, change=with_failure_policy) as group:
        await group.until_runs(1)
        for pod in group.pods():
            group.order(pod, "exit 0")
        await group.until_ended("Completed")

        assert group.epochs() == (1, 0)
        assert group.broken() == []
