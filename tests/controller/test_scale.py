"""Many or large JobSets on a slow or overloaded server: bounded work, no starved JobSet, no lost write."""

import asyncio
import gc
import tracemalloc
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import pairwise
from random import Random

import msgspec
import pytest
import structlog

from inplace.common.jobset.kinds import POD_CODEC
from inplace.common.kube.client import KubeClient
from inplace.common.kube.clock import LoopClock
from inplace.common.kube.errors import NotFound
from inplace.common.kube.http.request import Request, Response, Stream
from inplace.common.kube.informer import Informer
from inplace.common.kube.resources import JOBS, JOBSETS, NAMESPACES, PODS, KubeObject
from inplace.common.wire import names as wire
from inplace.controller.act.execute import GIVES_WAY_S
from inplace.controller.api.pace import WRITES_MAX
from inplace.controller.tracking.group import Key
from tests.common.kube.answers import refusal
from tests.controller.manifests import jobset, replicated_job
from tests.controller.objects import make_job, make_jobset, make_membership
from tests.controller.rig import Rig

pytestmark = pytest.mark.virtual_time

WRITE_S = 0.05  # of a server that is busy
FLOODED_WRITE_S = 0.5  # of one that 48 writes keep busy
RESTART_S_MAX = 0.5
POD_COUNT = 1_000
POD_BYTES_MAX = 2_500  # of all caches and ledgers together; 10,000 Pods then cost 25 MB


def write_latency_s(request: Request) -> float:
    """Return how long a busy server takes for a request of the controller."""
    return 0.0 if request.method == "GET" else WRITE_S


async def create_many(rig: Rig, jobsets: int) -> None:
    """Create JobSets of one Job each."""
    for number in range(jobsets):
        await rig.admin.create(JOBSETS, "default", jobset(f"burst-{number}"))


@pytest.mark.slow
async def test_a_burst_of_jobsets_starves_no_restart(rig: Rig) -> None:
    """While a slow server creates 100 JobSets, another group's restart takes only the time of its two writes."""
    crew = await rig.started(jobset())
    rig.latency_s = write_latency_s
    await create_many(rig, 100)
    first, *others = crew.pods.values()
    for epoch in (2, 3, 4):
        began_s = rig.clock.monotonic_s()
        await crew.announce(first, epoch)
        while (await crew.epochs())[1] < epoch - 1:
            await rig.settle(0.001)
        await crew.announce_all(epoch, others)
        while (await crew.epochs())[0] < epoch:
            await rig.settle(0.001)
        assert rig.clock.monotonic_s() - began_s < RESTART_S_MAX
    assert len((await rig.admin.list(JOBS, "default"))["items"]) < 100, "the burst ended too soon to prove it"
    await rig.settle(60.0)
    assert len((await rig.admin.list(JOBS, "default"))["items"]) == 101


async def until_made(rig: Rig, namespace: str, job: str) -> float:
    """Return in how many seconds a Job is there."""
    began_s = rig.clock.monotonic_s()
    while True:
        try:
            await rig.admin.get(JOBS, namespace, job)
        except NotFound:
            await rig.settle(0.01)
        else:
            return rig.clock.monotonic_s() - began_s


@pytest.mark.slow
@pytest.mark.attack
@pytest.mark.parametrize(
    ("namespaces", "jobsets", "jobs", "writes_waited"),
    [(1, 60, 20, 2), (1, 8, 500, 2), (4, 15, 20, 2), (20, 3, 100, 8)],
    ids=["60 JobSets", "8 JobSets of 500 Jobs", "4 namespaces", "20 namespaces"],
)
async def test_a_flood_of_other_namespaces_does_not_delay_a_new_jobset(
    rig: Rig, namespaces: int, jobsets: int, jobs: int, writes_waited: int
) -> None:
    """On a server that takes half a second for a write, a JobSet waits for so many writes more than without a flood.

    A restart beside it takes its two status writes. Of many namespaces each has its turn at the workers.
    """
    crew = await rig.started(jobset())
    for namespace in ("team", *(f"flood-{number}" for number in range(namespaces))):
        await rig.admin.create(NAMESPACES, None, {"metadata": {"name": namespace}})
    rig.latency_s = lambda request: 0.0 if request.method == "GET" or "/leases" in request.path else FLOODED_WRITE_S
    await rig.admin.create(JOBSETS, "default", jobset("before", jobs=[replicated_job()]))
    alone_s = await until_made(rig, "default", "before-workers-0")
    await rig.settle(5.0)
    for number in range(jobsets * namespaces):
        namespace = f"flood-{number % namespaces}"
        flood = jobset(f"flood-{number}", namespace=namespace, jobs=[replicated_job(replicas=jobs)])
        await rig.admin.create(JOBSETS, namespace, flood)
    await rig.settle(2.2)
    for epoch in (2, 3):
        name = f"beside-{epoch}"
        await rig.admin.create(JOBSETS, "team", jobset(name, namespace="team", jobs=[replicated_job()]))
        waited_s = await until_made(rig, "team", f"{name}-workers-0")
        assert waited_s <= alone_s + writes_waited * FLOODED_WRITE_S
        began_s = rig.clock.monotonic_s()
        await crew.announce_all(epoch)
        while (await crew.epochs())[0] < epoch:
            await rig.settle(0.01)
        assert rig.clock.monotonic_s() - began_s <= 3 * FLOODED_WRITE_S
    made = len((await rig.admin.list(JOBS))["items"])
    assert made < namespaces * jobsets * jobs, "the flood ended too soon to prove it"


@pytest.mark.slow
async def test_a_small_jobset_does_not_wait_for_all_jobs_of_large_ones_of_its_namespace(rig: Rig) -> None:
    """Four passes, as many as a namespace may have, make 500 Jobs each; they end early for it, and make all later."""
    rig.latency_s = lambda request: 0.0 if request.method == "GET" or "/leases" in request.path else FLOODED_WRITE_S
    for number in range(4):
        await rig.admin.create(JOBSETS, "default", jobset(f"large-{number}", jobs=[replicated_job(replicas=500)]))
    await rig.settle(0.2)
    await rig.admin.create(JOBSETS, "default", jobset("small", jobs=[replicated_job()]))
    assert await until_made(rig, "default", "small-workers-0") <= GIVES_WAY_S + 5 * FLOODED_WRITE_S
    assert len((await rig.admin.list(JOBS, "default"))["items"]) < 1_000
    await rig.settle(60.0)
    assert len((await rig.admin.list(JOBS, "default"))["items"]) == 2_001
    assert rig.writes("/jobs", "POST") == 2_001


@pytest.mark.slow
async def test_an_overloaded_server_is_spared_and_every_job_is_made_once(rig: Rig) -> None:
    """While each write gets Retry-After for 20 s, few are sent; then every Job is made exactly once."""
    crew = await rig.started(jobset())
    overloaded_until_s = rig.clock.monotonic_s() + 20.0
    refused: list[float] = []

    def fault(request: Request) -> Response | None:
        now_s = rig.clock.monotonic_s()
        if request.method == "GET" or "/leases" in request.path or now_s > overloaded_until_s:
            return None
        refused.append(now_s)
        busy = refusal(429, "TooManyRequests")
        return Response(busy.status, {**busy.headers, "retry-after": "2"}, busy.body)

    rig.latency_s = write_latency_s
    rig.fault = fault
    await create_many(rig, 100)
    await rig.meet(crew, 2, 120.0)
    assert (await crew.epochs())[0] == 2
    assert len((await rig.admin.list(JOBS, "default"))["items"]) == 101
    pauses_s = [after - before for before, after in pairwise(refused)]
    assert all(pause_s < 2 * WRITE_S or pause_s >= 2.0 for pause_s in pauses_s)  # sent together, or after it
    assert len(refused) <= 40, f"{len(refused)} writes were sent to a server that asked for peace"


async def test_jobs_of_one_jobset_are_created_in_parallel_and_not_without_bound(rig: Rig) -> None:
    """480 Jobs on a server that takes 50 ms for each are created in ten windowfuls, one after the other."""
    rig.latency_s = write_latency_s
    began_s = rig.clock.monotonic_s()
    jobs = 10 * WRITES_MAX
    await rig.admin.create(JOBSETS, "default", jobset(jobs=[replicated_job(replicas=jobs)]))
    while len((await rig.admin.list(JOBS, "default"))["items"]) < jobs:
        await rig.settle(WRITE_S / 5)
    took_s = rig.clock.monotonic_s() - began_s
    assert 10 * WRITE_S <= took_s <= 14 * WRITE_S


@pytest.mark.parametrize("pods", [2, 40])
async def test_a_group_restart_writes_the_status_twice_however_many_pods_there_are(rig: Rig, pods: int) -> None:
    """A restart writes the epochs twice, and Jobs' counters a bounded number of times, for any number of Pods."""
    crew = await rig.started(jobset(jobs=[replicated_job(replicas=2, pods=pods // 2)]))
    await rig.settle(10.0)
    before = rig.writes("/jobsets/train/status")
    first, *others = crew.pods.values()
    await rig.announce(crew, first, 2, 0.1)
    for name in await crew.jobs():
        for ready in range(pods // 2):
            await crew.set_job(name, active=pods // 2, ready=ready)
            await rig.settle(0.02)
    for pod in others:
        await rig.announce(crew, pod, 2, 0.01)
    assert await crew.epochs() == (2, 1)
    assert rig.writes("/jobsets/train/status") - before == 2
    await rig.settle(10.0)
    assert rig.writes("/jobsets/train/status") - before <= 2 + 2


class Listed:
    """An API server that always lists the same Pods and whose watches stay silent."""

    def __init__(self, pods: list[KubeObject]) -> None:
        self._pods = pods

    async def request(self, request: Request, *, timeout_s: float) -> Response:
        """Answer a list."""
        body = msgspec.json.encode({"metadata": {"resourceVersion": "9"}, "items": self._pods})
        return Response(200, {}, body)

    @asynccontextmanager
    async def stream(self, request: Request, *, timeout_s: float) -> AsyncIterator[Stream]:
        """Hang."""
        await asyncio.Event().wait()
        raise AssertionError("unreachable")
        yield


def pod(index: int) -> KubeObject:
    """Return a Pod of some 8 kB."""
    labels = {wire.JOBSET_UID: "jobset-uid", wire.REPLICATED_JOB_NAME: "workers"}
    completion = {wire.JOB_COMPLETION_INDEX: str(index)}
    status = {"name": "worker", "containerID": f"containerd://{index:064}", "state": {"running": {"startedAt": "now"}}}
    return {
        "metadata": {
            "name": f"train-workers-0-{index}-abcde",
            "namespace": "default",
            "uid": f"{index:08}-0000-4000-8000-000000000000",
            "resourceVersion": str(index),
            "labels": labels | completion,
            "annotations": completion | wire.epoch_annotations(1),
            "ownerReferences": [{"kind": "Job", "uid": "job-uid", "controller": True}],
            "managedFields": [{"fieldsV1": {f"f:{number}": {} for number in range(300)}}],
        },
        "spec": {"nodeName": f"node-{index}", "containers": [{"name": "worker", "args": ["x" * 4_000]}]},
        "status": {"phase": "Running", "containerStatuses": [status]},
    }


async def test_a_pod_costs_a_bounded_number_of_bytes() -> None:
    """Cache, indexes and ledger keep a bounded part of a Pod of 8 kB, and no raw bytes."""
    woken: list[Key] = []
    membership = make_membership(lambda key, _: woken.append(key), lambda _object, note: pytest.fail(note.message))
    membership.jobset_changed(None, make_jobset(uid="jobset-uid", pods=POD_COUNT))
    membership.job_changed(None, make_job("job-uid", owner="jobset-uid"))
    pods = [pod(index) for index in range(POD_COUNT)]
    assert 7_000 < len(msgspec.json.encode(pods[0])) < 9_000
    client = KubeClient(Listed(pods), user_agent="x", field_manager="x")
    handlers = (membership.pod_changed,)
    informer = Informer(
        client, PODS, POD_CODEC, clock=LoopClock(), rng=Random(1), log=structlog.get_logger(), handlers=handlers
    )
    gc.collect()
    tracemalloc.start()
    try:
        running = asyncio.create_task(informer.run())
        await informer.wait_synced()
        await asyncio.sleep(0)
        gc.collect()
        kept, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
        running.cancel()
    assert woken, "expected all Pods to be counted and so the first sync to be due"
    assert kept / POD_COUNT < POD_BYTES_MAX
