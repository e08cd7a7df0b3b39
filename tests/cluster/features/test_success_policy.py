"""spec.successPolicy: which Jobs must succeed, and the end of the others."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import pytest

from inplace.common.kube.resources import KubeObject
from tests.cluster.features.stage import Stage
from tests.controller.manifests import jobset, replicated_job

pytestmark = pytest.mark.asyncio(loop_scope="session")

COMPLETED: Final = ("Completed", "True", "AllJobsCompleted", "jobset completed successfully")


@dataclass(frozen=True)
class Case:
    """A policy, and the Jobs (of `a`: 2, `b`: 1) that succeed in turn; the last one decides."""

    claim: str
    policy: KubeObject | None
    succeed: tuple[str, ...]
    completes: bool


def policy(operator: str, *targets: str) -> KubeObject:
    """Return a success policy."""
    return {"operator": operator} | ({"targetReplicatedJobs": list(targets)} if targets else {})


CASES: Final = (
    Case("default_needs_all", None, ("a-0", "a-1", "b-0"), True),
    Case("default_two_of_three", None, ("a-0", "b-0"), False),
    Case("all_needs_all", policy("All"), ("a-0", "a-1", "b-0"), True),
    Case("all_two_of_three", policy("All"), ("a-0", "a-1"), False),
    Case("all_of_a_target", policy("All", "a"), ("a-0", "a-1"), True),
    Case("all_of_a_target_needs_each_job", policy("All", "a"), ("a-0", "b-0"), False),
    Case("all_of_two_targets", policy("All", "a", "b"), ("a-0", "a-1"), False),
    Case("all_of_the_other_target", policy("All", "b"), ("b-0",), True),
    Case("any_takes_one", policy("Any"), ("b-0",), True),
    Case("any_of_a_target", policy("Any", "a"), ("a-1",), True),
    Case("any_of_a_target_but_another_job", policy("Any", "a"), ("b-0",), False),
    Case("any_of_two_targets", policy("Any", "a", "b"), ("b-0",), True),
    Case("all_of_an_empty_target", policy("All", "none"), ("b-0",), True),
)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.claim)
async def test_who_must_succeed(stage: Stage, case: Case) -> None:
    """The JobSet completes exactly when the policy is met; then the running Jobs are deleted."""
    jobs = [replicated_job("a", replicas=2), replicated_job("b"), replicated_job("none", replicas=0)]
    given: dict[str, Any] = {} if case.policy is None else {"successPolicy": case.policy}
    await stage.start(jobset(strategy=None, jobs=jobs, **given))
    *before, last = (f"train-{name}" for name in case.succeed)
    await stage.succeed(*before)
    for name in ("a", "b") if before else ():
        await stage.counts_are(name, succeeded=sum(f"-{name}-" in job for job in before))
    assert (await stage.status()).get("terminalState") in (None, "")
    await stage.succeed(last)
    for name in ("a", "b"):
        await stage.counts_are(name, succeeded=sum(name in job for job in case.succeed))
    if not case.completes:
        assert (await stage.status()).get("terminalState") in (None, "")
        assert await stage.words("Completed") is None
        return
    await stage.becomes(*COMPLETED)
    await stage.becomes_terminal("Completed")
    await stage.says("AllJobsCompleted", "Normal", "jobset completed successfully")
    await stage.has_jobs(*(f"train-{name}" for name in case.succeed))


async def test_a_failure_comes_before_a_success(stage: Stage) -> None:
    """When one Job failed and another succeeded, the failure decides, although Any is met."""
    await stage.start(jobset(strategy=None, jobs=[replicated_job("a", replicas=2)], successPolicy=policy("Any")))
    await stage.fail("train-a-0")
    await stage.becomes_terminal("Failed")
    await stage.succeed("train-a-1")
    await stage.counts_are("a", failed=1)
    assert await stage.words("Completed") is None


async def test_nothing_to_run_never_completes(stage: Stage) -> None:
    """A JobSet without any replica never completes."""
    await stage.start(jobset(strategy=None, jobs=[replicated_job("a", replicas=0)]))
    await stage.shows(restarts=0)
    await stage.counts_are("a")
    assert await stage.words("Completed") is None
