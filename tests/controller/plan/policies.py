"""JobSets with a failure policy."""

from __future__ import annotations

from typing import Any, Final

from inplace.common.kube.resources import KubeObject
from tests.controller.manifests import jobset, replicated_job
from tests.controller.plan.planner_world import PlannerWorld, settled

TWO_JOBS: Final = (replicated_job("a", replicas=2), replicated_job("b", replicas=2))


def with_rules(*rules: KubeObject, strategy: str = "Recreate", restarts_max: int = 2, **options: Any) -> KubeObject:
    """Return a JobSet with named rules."""
    jobs = options.pop("jobs", list(TWO_JOBS))
    named = [{"name": f"r{index}"} | rule for index, rule in enumerate(rules)]
    return jobset(jobs=jobs, strategy=strategy, restarts_max=restarts_max, rules=named, **options)


def started(*rules: KubeObject, **options: Any) -> PlannerWorld:
    """Return a world whose Jobs were created."""
    return settled(with_rules(*rules, **options))


def uids(world: PlannerWorld) -> dict[str, str]:
    """Return every Job's UID."""
    return {name: job["metadata"]["uid"] for name, job in world.jobs.items()}


def counters(world: PlannerWorld, replicated_job: str) -> KubeObject:
    """Return one entry of replicatedJobsStatus."""
    return next(entry for entry in world.status["replicatedJobsStatus"] if entry["name"] == replicated_job)
