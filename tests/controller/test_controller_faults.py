"""Under faults of servers and networks no change is lost or made twice."""

import asyncio
from random import Random
from typing import Any

import pytest
from structlog.testing import capture_logs

from inplace.common.kube.http.request import Request, Response
from inplace.common.kube.resources import JOBS, JOBSETS, SERVICES
from inplace.controller.act.execute import AGAIN_S
from inplace.simulator.cluster.virtual_time import run
from tests.common.kube.answers import refusal
from tests.controller.crew import exists
from tests.controller.manifests import jobset, replicated_job
from tests.controller.rig import Rig

pytestmark = pytest.mark.virtual_time

TWO_BY_TWO = jobset(jobs=[replicated_job(replicas=2, pods=2)])


async def test_a_controller_that_starts_anew_continues_in_every_state() -> None:
    """A new controller continues after one killed in each state: not synced, running, deprecated, all announced."""
    rig = Rig()
    async with rig.running(rig.controller(leader_elect=False)):
        crew = await rig.with_pods(jobset())
    one, two = crew.pods.values()
    steps: tuple[tuple[str, int, tuple[int, int]], ...] = (
        (one, 1, (0, 0)),
        (two, 1, (1, 0)),
        (two, 2, (1, 1)),
        (one, 2, (2, 1)),
    )
    for pod, epoch, expected in steps:
        await crew.announce(pod, epoch)  # while no controller watches
        async with rig.running(rig.controller(leader_elect=False)):
            assert await crew.epochs() == expected


async def test_an_own_job_that_exists_counts_as_created() -> None:
    """After a lost reply to a creation the controller finds its Job by one read, without an error."""
    rig = Rig()
    lost = [True]

    async def create_behind_our_back(request: Request) -> None:
        await rig.server.handle(request, user="admin")

    def fault(request: Request) -> Response | None:
        if request.method == "POST" and "/jobs" in request.path and lost:
            lost.clear()
            task = asyncio.ensure_future(create_behind_our_back(request))
            tasks.append(task)
            return refusal(500, "InternalError")
        return None

    tasks: list[Any] = []
    rig.fault = fault
    async with rig.running():
        crew = await rig.submit(jobset())
        await rig.settle(5.0)
        assert set(await crew.jobs()) == {"train-workers-0"}


async def test_a_conflict_is_decided_again_on_fresh_state(rig: Rig) -> None:
    """After a conflict the controller decides again on the new state, and neither write is lost."""
    crew = await rig.with_pods(jobset())
    conflicts = [True, True]

    def fault(request: Request) -> Response | None:
        if request.method == "PATCH" and "/status" in request.path and conflicts:
            conflicts.pop()
            return refusal(409, "Conflict")
        return None

    rig.fault = fault
    with capture_logs() as logs:
        await rig.meet(crew, 1, 0.5)
    assert await crew.epochs() == (1, 0)
    assert not [entry for entry in logs if entry["log_level"] in ("error", "warning")]
    assert b"inplace_api_conflicts_total 2.0" in rig.controllers[0].metrics.text()


async def test_a_status_write_that_fails_is_tried_again(rig: Rig) -> None:
    """A failed or throttled status write delays the epoch and is repeated."""
    crew = await rig.with_pods(jobset())
    answers = [refusal(500, "InternalError"), refusal(429, "TooManyRequests")]

    def fault(request: Request) -> Response | None:
        return answers.pop() if request.path.split("?")[0].endswith("/status") and answers else None

    rig.fault = fault
    await rig.meet(crew, 1, 1.0)
    assert await crew.epochs() == (1, 0)


async def test_a_deleted_service_comes_back(rig: Rig) -> None:
    """A deleted headless Service is created again."""
    await rig.submit(jobset())
    await rig.admin.delete(SERVICES, "default", "train")
    await rig.settle(1.0)
    assert await exists(rig.admin, SERVICES, "default", "train")


async def test_a_job_deleted_by_hand_comes_back(rig: Rig) -> None:
    """A Job deleted by hand is created again; the group waits for its new Pods."""
    crew = await rig.started(TWO_BY_TWO)
    await rig.admin.delete(JOBS, "default", "train-workers-0")
    await rig.settle(5.0)
    assert set(await crew.jobs()) == {"train-workers-0", "train-workers-1"}
    crew.pods = {slot: pod for slot, pod in crew.pods.items() if slot[0] == "train-workers-1"}
    await crew.make_pods()
    await rig.announce(crew, crew.pods["train-workers-0", 0], 2)
    assert await crew.epochs() == (1, 1)
    await rig.meet(crew, 2)
    assert await crew.epochs() == (2, 1)


async def test_an_unreachable_server_is_waited_for() -> None:
    """While the server refuses everything at the start, the log says so; work begins when it is back."""
    rig = Rig()
    rig.fault = lambda _: refusal(503, "ServiceUnavailable")
    with capture_logs() as logs:
        async with rig.running():
            await rig.settle(60.0)
            assert any(entry["event"] == "leadership_not_acquired" for entry in logs)
            rig.fault = lambda _: None
            await rig.settle(30.0)
            crew = await rig.started(jobset())
            assert await crew.epochs() == (1, 0)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(12))
def test_lagging_caches_and_other_schedules_change_nothing(seed: int) -> None:
    """With lagging watches and callbacks in any order no Job is created twice and no epoch is lost."""
    rng = Random(seed)
    lags = {plural: rng.choice([0.0, 0.05, 0.5]) for plural in ("jobsets", "jobs", "pods", "services")}

    async def scenario() -> None:
        rig = Rig(watch_cache_lag_s=lambda plural: lags.get(plural, 0.0))
        async with rig.running():
            crew = await rig.submit(TWO_BY_TWO)
            await rig.settle(2.0)
            await crew.make_pods()
            pods = list(crew.pods.values())
            for epoch in (1, 2, 3):
                rng.shuffle(pods)
                for pod in pods:
                    await rig.announce(crew, pod, epoch, rng.choice([0.0, 0.01, 0.7]))
                await rig.settle(3.0)
                synced, _ = await crew.epochs()
                assert synced == epoch
            assert rig.writes("/jobs", "POST") == 2
            assert rig.writes("/services", "POST") == 1
            assert rig.writes("/jobsets/train/status") <= 1 + 2 * 3 + 4

    run(scenario(), shuffle_seed=seed)


async def test_a_service_that_the_cache_does_not_show_is_not_asked_for_by_each_event() -> None:
    """While an old JobSet's Service holds the name and the watch is late, retries stay few, and ours is made."""
    rig = Rig(watch_cache_lag_s=lambda plural: 3.0 if plural == "services" else 0.0)
    async with rig.running():
        old = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "train"}, "spec": {"clusterIP": "None"}}
        await rig.admin.create(SERVICES, "default", old)
        await rig.submit(jobset())
        for number in range(100):
            await rig.edit({"metadata": {"labels": {"edited": str(number)}}}, 0.01)
        assert 1 <= rig.writes("/services", "POST") <= (1.0 + 100 * 0.01) / AGAIN_S + 2
        await rig.admin.delete(SERVICES, "default", "train")
        await rig.settle(10.0)
        found = await rig.admin.get(SERVICES, "default", "train")
        assert found["metadata"]["ownerReferences"][0]["name"] == "train"


async def test_a_late_jobset_does_not_make_the_garbage_collector_work() -> None:
    """When the JobSet's deletion reaches us late, we create few objects that the garbage collector removes."""
    rig = Rig(watch_cache_lag_s=lambda plural: 10.0 if plural == "jobsets" else 0.0)
    rig.latency_s = lambda _: 0.01  # time must pass inside the tested loop
    async with rig.running():
        await rig.submit(TWO_BY_TWO)
        await rig.settle(20.0)
        before = len(rig.requests)
        await rig.admin.delete(JOBSETS, "default", "train", propagation="Background")
        await rig.settle(5.0)
        posts = [request.path for request in rig.requests[before:] if request.method == "POST"]
        again = [path for path in posts if "/events" not in path]
        assert 3 <= len(again) <= 3 * (5.0 / AGAIN_S + 1)  # a Service and two Jobs
        await rig.settle(20.0)
        assert (await rig.admin.list(JOBS))["items"] == []


async def test_a_relist_of_every_kind_in_the_middle_of_a_restart_loses_nothing(rig: Rig) -> None:
    """When history is compacted and all watches end while Pods announce, new lists correct the caches."""
    crew = await rig.started(TWO_BY_TWO)
    first, *rest = crew.pods.values()
    await crew.announce(first, 2)
    for group, plural in (("jobset.x-k8s.io", "jobsets"), ("batch", "jobs"), ("", "pods"), ("", "services")):
        rig.server.drop_watches(group, plural)
    await crew.announce_all(2, rest)
    rig.server.compact()
    await rig.settle(5.0)
    assert await crew.epochs() in [(2, 0), (2, 1)]


async def test_a_conflict_does_not_wait_for_a_slow_watch() -> None:
    """After a conflict the JobSet is read again, so a watch that lags 30 s does not delay the epoch."""
    rig = Rig(watch_cache_lag_s=lambda plural: 30.0 if plural == "jobsets" else 0.0)
    async with rig.running():
        crew = await rig.submit(jobset())
        await rig.settle(40.0)
        await crew.make_pods()
        await rig.edit({"metadata": {"labels": {"edited": "yes"}}}, 0.0)
        await rig.meet(crew, 1, 0.5)
        assert await crew.epochs() == (1, 0)


async def test_pods_are_listed_after_jobs_and_jobs_after_jobsets() -> None:
    """Pods are listed AFTER Jobs and Jobs AFTER JobSets, so a status is never newer than the Pods."""
    rig = Rig()
    refused = {"jobsets"}

    def fault(request: Request) -> Response | None:
        return refusal(503, "ServiceUnavailable") if _listed(request) in refused else None

    rig.fault = fault
    async with rig.running():
        for now, then in (("jobsets", "jobs"), ("jobs", "services"), ("services", "pods"), ("pods", "nothing")):
            await rig.settle(20.0)
            kinds = {_listed(request) for request in rig.requests}
            assert now in kinds
            assert then not in kinds
            refused.clear()
            refused.add(then)
        await rig.settle(20.0)
        assert rig.controllers[0].has_synced


def _listed(request: Request) -> str:
    """Return the plural of the kind that a request lists."""
    path, _, query = request.path.partition("?")
    return "" if "watch=" in query or request.method != "GET" else path.rpartition("/")[2]
