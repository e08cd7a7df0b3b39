"""Group restarts of real containers: kubelet, containerd, our images, our controller."""

from __future__ import annotations

import asyncio
import signal
from functools import partial

import pytest
import yaml

from inplace.common.kube.resources import KubeObject
from testbed.node.cluster import Cluster
from testbed.node.group import SETTLED_S_MAX, Group, running_group
from testbed.node.manifests import EXAMPLES, do_without_rules, get_clean_containers, watch_over
from testbed.waiting import until

pytestmark = pytest.mark.asyncio(loop_scope="session")

IN_A_ROW = 20
STALL_AFTER_S = 2.0  # of workers that step each second
CAUSES = ("exit 1", "exit 3", "exit 88", "exit 127", "exit 255", "oom")
"""88 is the agent's own code, 127 a shell's; a worker above its container's limit is killed by the kernel."""


async def test_a_killed_worker_restarts_the_group_in_place(group: Group) -> None:
    """After SIGKILL to one worker all workers run at the next epoch, in the same Pods."""
    epoch, before = group.epoch + 1, group.uids()
    await group.kill(0, "worker")
    await group.until_runs(epoch)

    assert group.epochs() == (epoch, epoch - 1)
    assert group.uids() == before
    assert group.broken() == []


@pytest.mark.long
async def test_twenty_restarts_in_a_row_whatever_their_cause(group: Group) -> None:
    """Each of twenty restarts costs one epoch and no Pod, and CrashLoopBackOff never delays one."""
    first, before = group.epoch + 1, group.uids()
    for epoch in range(first, first + IN_A_ROW):
        group.order(group.pods()[epoch % 3], CAUSES[epoch % len(CAUSES)])
        await group.until_runs(epoch)

    assert group.uids() == before
    assert group.broken() == []


@pytest.mark.parametrize("mode", ["containers", "process"])
async def test_an_agent_killed_outright_restarts_the_group_in_place(cluster: Cluster, mode: str) -> None:
    """After SIGKILL to a sidecar agent the Pod's containers restart, and then the group's."""
    async with running_group(cluster, mode) as group:
        await group.until_runs(1)
        before = group.uids()
        await group.kill(1, "agent")
        await group.until_runs(2)

        assert group.uids() == before
        assert group.broken() == []


@pytest.mark.parametrize("mode", ["containers", "process"])
async def test_a_guard_killed_outright_restarts_the_group_in_place(cluster: Cluster, mode: str) -> None:
    """After SIGKILL to a guard the kernel ends its worker, the agent tells of the death, and no Pod is lost."""
    async with running_group(cluster, mode) as group:
        await group.until_runs(1)
        before = group.uids()
        await group.kill(1, "worker", process=0)
        await group.until_runs(2)

        assert group.uids() == before
        assert group.broken() == []
        told = group.history.jobset()["status"]["lastGroupRestart"]["firstFailure"]
        # Whose word comes first is open: in depth containers kubelet shows the container's end as well.
        of_kubelet = mode == "containers" and told.get("exitCode") == 128 + signal.SIGKILL
        assert of_kubelet or told["message"] == "the container ended without a word", told


async def test_a_sidecar_without_rules_restarts_in_place(cluster: Cluster) -> None:
    """As on Kubernetes before 1.36: three failures of workers cost no Pod, and a killed agent costs its own."""
    async with running_group(cluster, "process", change=do_without_rules) as group:
        await group.until_runs(1)
        before = group.uids()
        for epoch in (2, 3, 4):
            await group.kill(1, "worker")
            await group.until_runs(epoch)
        assert group.uids() == before

        victim = group.pods()[1]
        group.expect_lost([victim])
        await group.kill(1, "agent")
        await group.until_runs(5)
        assert before - {pod["metadata"]["uid"] for pod in group.live()} == {victim["metadata"]["uid"]}
        assert group.broken() == []


async def test_a_worker_that_keeps_failing_gets_clean_containers(cluster: Cluster) -> None:
    """Depth process: one restart keeps every container; a second death in a row makes kubelet start that Pod's anew."""
    async with running_group(cluster, "process", change=get_clean_containers) as group:
        await group.until_runs(1)
        before = group.uids()
        for epoch in (2, 3):
            assert restart_counts(group) == [0, 0, 0]
            await group.kill(1, "worker")
            await group.until_runs(epoch)
        told = group.history.jobset()["status"]["lastGroupRestart"]["firstFailure"]
        assert "the last restart did not help" in told["message"]
        started_anew = "one container that was started anew"  # kubelet may say so after the worker's own record
        await until(lambda: sorted(restart_counts(group)) == [0, 0, 1], started_anew, timeout_s=SETTLED_S_MAX)
        assert group.uids() == before
        assert group.broken() == []


@pytest.mark.parametrize("mode", ["containers", "process", "supervisor"])
async def test_a_stopped_worker_is_noticed(cluster: Cluster, mode: str) -> None:
    """A worker that hangs is as good as dead after its limit, and not before: SIGSTOP, which it cannot see."""
    async with running_group(cluster, mode, change=partial(watch_over, stall_after_s=STALL_AFTER_S)) as group:
        await group.until_runs(1)
        before = group.uids()
        await asyncio.sleep(2 * STALL_AFTER_S)
        assert group.epoch == 1
        await group.kill(1, "worker", number=signal.SIGSTOP)
        await group.until_runs(2)

        assert group.uids() == before
        assert group.broken() == []
        assert group.history.jobset()["status"]["lastGroupRestart"]["trigger"] == "stalled"


@pytest.mark.parametrize("mode", ["containers", "process", "supervisor"])
async def test_a_worker_out_of_memory_restarts_the_group_in_place(cluster: Cluster, mode: str) -> None:
    """The kernel kills all processes of the container, the guard or supervisor among them where it is cgroup v2."""
    async with running_group(cluster, mode) as group:
        await group.until_runs(1)
        before = group.uids()
        group.order(group.pods()[1], "oom")
        await group.until_runs(2)

        assert group.uids() == before
        assert group.broken() == []


async def test_a_supervisor_killed_outright_costs_its_own_pod(cluster: Cluster) -> None:
    """After SIGKILL to a supervisor its worker ends too, the Pod fails, and its Job makes another."""
    async with running_group(cluster, "supervisor") as group:
        await group.until_runs(1)
        before, victim = group.uids(), group.pods()[1]
        group.expect_lost([victim])
        await group.kill(1, "worker", process=0)
        await group.until_runs(2)

        assert before < group.uids()
        assert group.epochs() == (2, 1)
        assert group.broken() == []


def start_again(jobset: KubeObject) -> None:
    """Give the worker's container the rules of examples/jax.yaml."""
    theirs = list(yaml.safe_load_all((EXAMPLES / "jax.yaml").read_text()))[-1]
    (ours,), (ruled,) = (
        each["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]["containers"]
        for each in (jobset, theirs)
    )
    ours |= {key: ruled[key] for key in ("restartPolicy", "restartPolicyRules")}


async def test_a_supervisor_killed_outright_keeps_its_pod_where_a_rule_says_so(cluster: Cluster) -> None:
    """With the rule for code 137 kubelet starts the killed supervisor's container again, and no Pod is lost."""
    async with running_group(cluster, "supervisor", change=start_again) as group:
        await group.until_runs(1)
        before = group.uids()
        await group.kill(1, "worker", process=0)
        await group.until_runs(2)

        assert group.uids() == before
        assert sorted(restart_counts(group)) == [0, 0, 1]
        assert group.broken() == []


async def test_one_restart_too_many_fails_the_jobset(cluster: Cluster) -> None:
    """After maxRestarts restarts the next failure ends the JobSet, and no worker runs an epoch beyond."""
    async with running_group(cluster, "supervisor", restarts_max=1) as group:
        for epoch in (1, 2):
            await group.until_runs(epoch)
            group.order(group.pods()[0], "exit 3")
        await group.until_ended("Failed")

        assert [problem for problem in group.broken() if not problem.startswith("S5")] == []


async def test_a_group_grows_and_shrinks_in_place(cluster: Cluster, mode: str) -> None:
    """Each resize restarts the remaining Pods once in place, uncounted."""
    async with running_group(cluster, mode, pods=2, restarts_max=0) as group:
        await group.until_runs(1)
        before = group.uids()
        await group.resize(3)
        await group.until_runs(2)
        assert before < group.uids()
        (added,) = (pod for pod in group.pods() if pod["metadata"]["uid"] not in before)
        group.expect_lost([added])
        await group.resize(2)
        await group.until_runs(3)
        await until(lambda: group.uids() == before, "who left is gone", timeout_s=SETTLED_S_MAX, also=group.state)

        assert [problem for problem in group.broken() if not problem.startswith("S6")] == []


def restart_counts(group: Group) -> list[int]:
    """Return how often kubelet has started each Pod's worker container again."""
    return [pod["status"]["containerStatuses"][0]["restartCount"] for pod in group.pods()]
