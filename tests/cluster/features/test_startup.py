"""startupPolicy InOrder and dependsOn: the order in which replicatedJobs start."""

from __future__ import annotations

from typing import Any, Final

import pytest

from inplace.common.kube.resources import KubeObject
from testbed.waiting import eventually
from tests.cluster.features.stage import Stage
from tests.controller.manifests import jobset, replicated_job

pytestmark = pytest.mark.asyncio(loop_scope="session")

IN_ORDER: Final = {"startupPolicyOrder": "InOrder"}
RESTART_ATTEMPT: Final = "jobset.sigs.k8s.io/restart-attempt"
IN_PROGRESS: Final = ("True", "InOrderStartupPolicyInProgress", "in order startup policy is in progress")
HAS_COMPLETED: Final = ("True", "InOrderStartupPolicyCompleted", "in order startup policy has completed")


def in_order(*jobs: KubeObject, **spec: Any) -> KubeObject:
    """Return a JobSet that starts in order."""
    spec = {"strategy": None} | spec
    return jobset(jobs=list(jobs), startupPolicy=IN_ORDER, **spec)


def after(name: str, *others: tuple[str, str], **spec: Any) -> KubeObject:
    """Return a replicatedJob that waits for (name, status) of others."""
    depends_on = [{"name": other, "status": status} for other, status in others]
    return replicated_job(name, **spec) | {"dependsOn": depends_on}


async def test_in_order(stage: Stage) -> None:
    """A replicatedJob starts when each Job of the one before is ready; two conditions show the progress."""
    await stage.submit(in_order(replicated_job("a", replicas=2), replicated_job("b"), replicated_job("c")))
    await stage.has_jobs("train-a-0", "train-a-1")
    await stage.becomes("StartupPolicyInProgress", *IN_PROGRESS)
    await stage.says(IN_PROGRESS[1], "Normal", IN_PROGRESS[2])
    await stage.be_ready("train-a-0")
    await stage.counts_are("a", ready=1, active=1)
    assert set(await stage.jobs()) == {"train-a-0", "train-a-1"}
    await stage.be_ready("train-a-1")
    await stage.has_jobs("train-a-0", "train-a-1", "train-b-0")
    await stage.be_ready("train-b-0")
    await stage.has_jobs("train-a-0", "train-a-1", "train-b-0", "train-c-0")
    await stage.be_ready("train-c-0")
    await stage.becomes("StartupPolicyCompleted", *HAS_COMPLETED)
    await stage.says(HAS_COMPLETED[1], "Normal", HAS_COMPLETED[2])
    await stage.becomes("StartupPolicyInProgress", "False", *IN_PROGRESS[1:])


ENOUGH: Final = {"ready": "be_ready", "succeeded": "succeed"}


@pytest.mark.parametrize("how", ENOUGH)
async def test_in_order_what_is_started(stage: Stage, how: str) -> None:
    """A Job counts as started when it is ready or finished."""
    await stage.submit(in_order(replicated_job("a"), replicated_job("b")))
    await stage.has_jobs("train-a-0")
    await getattr(stage, ENOUGH[how])("train-a-0")
    await stage.has_jobs("train-a-0", "train-b-0")


async def test_in_order_zero_replicas_hold_nobody_up(stage: Stage) -> None:
    """A replicatedJob without replicas counts as started."""
    await stage.submit(in_order(replicated_job("a", replicas=0), replicated_job("b")))
    await stage.has_jobs("train-b-0")


async def test_in_order_starts_over_after_a_restart(stage: Stage) -> None:
    """A restart of all Jobs repeats the sequence, and the conditions turn back."""
    await stage.submit(in_order(replicated_job("a"), replicated_job("b"), strategy="Recreate"))
    await stage.has_jobs("train-a-0")
    await stage.be_ready("train-a-0")
    await stage.has_jobs("train-a-0", "train-b-0")
    await stage.be_ready("train-b-0")
    await stage.becomes("StartupPolicyCompleted", *HAS_COMPLETED)
    await stage.fail("train-b-0")
    await stage.has_jobs("train-a-0")
    await stage.becomes("StartupPolicyInProgress", *IN_PROGRESS)
    await stage.becomes("StartupPolicyCompleted", "False", *HAS_COMPLETED[1:])


async def test_in_order_suspended(stage: Stage) -> None:
    """While suspended all Jobs exist; after the resume they are resumed one replicatedJob at a time."""
    await stage.start(in_order(replicated_job("a"), replicated_job("b"), suspend=True))
    await stage.becomes("Suspended", "True", "SuspendedJobs", "jobset is suspended")
    assert await stage.words("StartupPolicyInProgress") is None
    await stage.edit({"spec": {"suspend": False}})

    async def suspended() -> dict[str, bool]:
        return {name: job["spec"]["suspend"] for name, job in (await stage.jobs()).items()}

    await eventually(suspended, {"train-a-0": False, "train-b-0": True})
    await stage.becomes("StartupPolicyInProgress", *IN_PROGRESS)
    assert await stage.words("Suspended") == ("True", "SuspendedJobs", "jobset is suspended")
    await stage.be_ready("train-a-0")
    await eventually(suspended, {"train-a-0": False, "train-b-0": False})
    await stage.be_ready("train-b-0")
    await stage.becomes("Suspended", "False", "ResumeJobs", "jobset is resumed")


@pytest.mark.parametrize("status", ["Ready", "Complete"])
async def test_depends_on(stage: Stage, status: str) -> None:
    """The dependent starts when every Job of its dependency has reached the state, not before."""
    await stage.submit(jobset(strategy=None, jobs=[replicated_job("a", replicas=2), after("b", ("a", status))]))
    await stage.has_jobs("train-a-0", "train-a-1")
    reach = stage.be_ready if status == "Ready" else stage.succeed
    await reach("train-a-0")
    await stage.counts_are("a", **({"ready": 1, "active": 1} if status == "Ready" else {"succeeded": 1}))
    assert set(await stage.jobs()) == {"train-a-0", "train-a-1"}
    await reach("train-a-1")
    await stage.has_jobs("train-a-0", "train-a-1", "train-b-0")


async def test_depends_on_names_whom_it_waits_for(stage: Stage) -> None:
    """StartWaiting names the waiting replicatedJob and its dependency; upstream has no condition for dependsOn."""
    await stage.submit(jobset(strategy=None, jobs=[replicated_job("a"), after("b", ("a", "Ready"))]))
    message = "replicatedJob b waits for a to be Ready"
    await stage.becomes("StartWaiting", "True", "ReplicatedJobsNotDue", message)
    await stage.has_jobs("train-a-0")
    await stage.be_ready("train-a-0")
    await stage.becomes("StartWaiting", "False", "ReplicatedJobsDue", "the turn of every replicatedJob has come")


async def test_depends_on_complete_is_not_met_by_ready(stage: Stage) -> None:
    """Ready Pods do not satisfy a dependency on Complete; a completed Job satisfies a dependency on Ready."""
    waits = [replicated_job("a"), after("c", ("a", "Complete")), after("r", ("a", "Ready"))]
    await stage.submit(jobset(strategy=None, jobs=waits))
    await stage.has_jobs("train-a-0")
    await stage.be_ready("train-a-0")
    await stage.has_jobs("train-a-0", "train-r-0")
    await stage.succeed("train-a-0")
    await stage.has_jobs("train-a-0", "train-r-0", "train-c-0")


async def test_depends_on_several(stage: Stage) -> None:
    """All dependencies must hold at once."""
    jobs = [replicated_job("a"), replicated_job("b"), after("c", ("a", "Complete"), ("b", "Ready"))]
    await stage.submit(jobset(strategy=None, jobs=jobs))
    await stage.has_jobs("train-a-0", "train-b-0")
    await stage.succeed("train-a-0")
    await stage.counts_are("a", succeeded=1)
    assert set(await stage.jobs()) == {"train-a-0", "train-b-0"}
    await stage.be_ready("train-b-0")
    await stage.has_jobs("train-a-0", "train-b-0", "train-c-0")


async def test_depends_on_is_asked_again_after_a_restart(stage: Stage) -> None:
    """After a restart dependsOn is evaluated anew for the new Jobs."""
    await stage.submit(jobset(strategy="Recreate", jobs=[replicated_job("a"), after("b", ("a", "Ready"))]))
    await stage.has_jobs("train-a-0")
    await stage.be_ready("train-a-0")
    await stage.has_jobs("train-a-0", "train-b-0")
    await stage.fail("train-b-0")
    await eventually(lambda: stage.labels_of(RESTART_ATTEMPT), {"train-a-0": "1"})
    await stage.be_ready("train-a-0")
    await stage.has_jobs("train-a-0", "train-b-0")


async def test_depends_on_while_suspended(stage: Stage) -> None:
    """The dependent's Job is not created while its dependency is suspended, and created after the resume."""
    await stage.submit(jobset(strategy=None, suspend=True, jobs=[replicated_job("a"), after("b", ("a", "Ready"))]))
    await stage.has_jobs("train-a-0")
    await stage.becomes("Suspended", "True", "SuspendedJobs", "jobset is suspended")
    assert set(await stage.jobs()) == {"train-a-0"}
    await stage.edit({"spec": {"suspend": False}})

    async def runs() -> bool:
        return not (await stage.jobs())["train-a-0"]["spec"]["suspend"]

    await eventually(runs, True)
    await stage.be_ready("train-a-0")
    await stage.has_jobs("train-a-0", "train-b-0")


@pytest.mark.parametrize("kind", ["InOrder", "DependsOn"])
async def test_in_place_with_an_order(stage: Stage, kind: str) -> None:
    """The first barrier waits only for due replicatedJobs; a later one joins by one uncounted restart."""
    second = replicated_job("b", pods=1) if kind == "InOrder" else after("b", ("a", "Ready"), pods=1)
    order: dict[str, Any] = {"startupPolicy": IN_ORDER} if kind == "InOrder" else {}
    await stage.submit(jobset(jobs=[replicated_job("a", pods=1), second], restarts_max=0, **order))
    await stage.has_jobs("train-a-0")
    await stage.make_pods()
    await stage.announce_all(1)
    await eventually(stage.epochs, (1, 0))
    await stage.be_ready("train-a-0")
    await stage.has_jobs("train-a-0", "train-b-0")
    await stage.make_pods()
    await stage.announce(stage.pods["train-b-0", 0], 2)
    await eventually(stage.epochs, (1, 1))
    await stage.announce(stage.pods["train-a-0", 0], 2)
    await eventually(stage.epochs, (2, 1))
    assert (await stage.status()).get("terminalState") in (None, "")
