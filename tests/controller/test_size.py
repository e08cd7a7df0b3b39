"""A small spec of a huge group gets a condition and affects no other JobSet."""

from __future__ import annotations

import tracemalloc
from itertools import islice
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inplace.common.jobset.fields import ANNOTATION_BYTES_MAX, JOBS_MAX, REPLICATED_JOBS_MAX, SLOTS_MAX, ReplicatedJob
from inplace.common.jobset.places import Places
from inplace.common.kube.http.request import Request
from inplace.common.kube.resources import KubeObject
from inplace.common.protocol.ledger import Ledger
from inplace.common.protocol.slot import Shape, Slot
from inplace.common.wire import names as wire
from inplace.controller.act.execute import ACTIONS_MAX, BYTES_MAX
from inplace.controller.plan.actions import CreateJob
from inplace.controller.plan.observed import NAMES_MAX
from inplace.controller.plan.steps import plan
from tests.controller.manifests import INT32_MAX, changed, jobset, replicated_job
from tests.controller.plan.planner_world import PlannerWorld
from tests.controller.rig import Rig
from tests.deploy.crd_cases import crd_without_rules

pytestmark = pytest.mark.virtual_time

PASSES_A_MINUTE_MAX = 10


def many(count: int, **size: int) -> list[KubeObject]:
    """Return replicatedJobs."""
    return [replicated_job(f"w{number}", **size) for number in range(count)]


@pytest.mark.parametrize(
    ("jobs", "strategy", "words"),
    [
        (
            many(1, pods=INT32_MAX),
            wire.IN_PLACE_RESTART,
            "at most 100,000 pods that restart together in place, saw 2,147",
        ),
        (many(2, pods=50_001), wire.IN_PLACE_RESTART, "saw 100,002"),
        (many(1, replicas=1_000, pods=100_000), wire.IN_PLACE_RESTART, "saw 100,000,000"),
        (
            many(1, replicas=10_001, pods=1),
            "Recreate",
            "replicas of at most 10,000 in all of them together, saw 10,001",
        ),
        (many(100, replicas=1_000, pods=1), "Recreate", "saw 100,000"),
        (many(1, replicas=INT32_MAX, pods=INT32_MAX), "Recreate", "saw 2,147,483,647"),
        (many(101, replicas=1), None, "at most 100 of them, saw 101"),
        (many(5_000, replicas=0), wire.IN_PLACE_RESTART, "saw 5000"),
    ],
)
def test_a_jobset_that_is_too_large_gets_a_sentence_and_nothing_else(
    jobs: list[KubeObject], strategy: str | None, words: str
) -> None:
    """A JobSet that is too large gets a condition with the bound, the seen value and the cure, and no action."""
    world = PlannerWorld(jobset(jobs=jobs, strategy=strategy))
    planned = world.plan()
    (condition,) = planned.status["conditions"]
    assert (condition["type"], condition["status"]) == ("SpecProblem", "True")
    assert words in condition["message"]
    assert "recreate it smaller" in condition["message"]
    assert (planned.actions, set(planned.status)) == ((), {"conditions"})
    world.carry_out(planned)
    assert world.plan().status == {}


@pytest.mark.parametrize(
    "jobs",
    [
        many(1, pods=SLOTS_MAX),
        many(1, replicas=10, pods=SLOTS_MAX // 10),
        many(REPLICATED_JOBS_MAX, replicas=1),
        many(1, replicas=JOBS_MAX, pods=10),
    ],
)
def test_the_largest_jobset_is_no_problem(jobs: list[KubeObject]) -> None:
    """A JobSet exactly at each bound is accepted."""
    world = PlannerWorld(jobset(jobs=jobs))
    assert "conditions" not in world.plan().status


@pytest.mark.parametrize("where", ["template.metadata", "template.spec.template.metadata"])
def test_annotations_beside_which_ours_do_not_fit_are_a_problem(where: str) -> None:
    """Annotations that leave no room for ours are a problem: the API would refuse every Job for ever."""
    for excess in (0, 1):
        value = "x" * (ANNOTATION_BYTES_MAX - len("key") + excess)
        job = changed(replicated_job(), where, {"annotations": {"key": value}})
        planned = PlannerWorld(jobset(jobs=[job])).plan()
        told = [condition["message"] for condition in planned.status.get("conditions", ())]
        if not excess:
            (created,) = (action.manifest for action in planned.actions if isinstance(action, CreateJob))
            for metadata in (created["metadata"], created["spec"]["template"]["metadata"]):
                assert sum(len(key) + len(text) for key, text in metadata["annotations"].items()) <= 256 * 1024
            assert told == []
            continue
        assert planned.actions == ()
        assert "expected annotations of at most 258,048 bytes" in told[0]
        assert "saw 258,049" in told[0]


def test_only_groups_that_restart_in_place_have_slots() -> None:
    """Without in-place restart, or opted out, a replicatedJob may have any size: no slots are counted."""
    recreated = PlannerWorld(jobset(jobs=many(1, pods=INT32_MAX), strategy="Recreate"))
    manifest = jobset(jobs=many(1, pods=INT32_MAX))
    manifest["spec"]["replicatedJobs"][0]["template"]["metadata"] = {"annotations": {wire.DISABLE: ""}}
    for world in (recreated, PlannerWorld(manifest)):
        assert "conditions" not in world.plan().status


@pytest.mark.parametrize("size", [{"pods": INT32_MAX}, {"replicas": 1_000, "pods": 100_000}, {"replicas": 100_000}])
async def test_a_jobset_beside_one_that_is_too_large_notices_nothing(size: dict[str, Any]) -> None:
    """Beside a JobSet that is too large, with a deadline of a second, another group restarts at once.

    The JobSet was stored before there were rules, or under upstream's.
    """
    rig = Rig(definition=crd_without_rules())
    async with rig.running():
        deadline = {wire.BARRIER: "1"}
        hostile = await rig.submit(jobset("hostile", jobs=[replicated_job(**size)], annotations=deadline))
        crew = await rig.started(jobset())
        await rig.settle(30.0)
        assert "nothing is done for this jobset" in (await hostile.condition("SpecProblem"))["message"]
        assert await hostile.jobs() == {}
        await rig.meet(crew, 2, 0.1)
        assert await crew.epochs() == (2, 1)


async def test_a_group_that_grows_too_large_is_left_alone_until_it_shrinks(rig: Rig) -> None:
    """A group that grows too large keeps its Pods; when it is smaller again it is counted anew."""
    crew = await rig.started(jobset(jobs=[replicated_job(replicas=2, pods=1)]))

    async def resize(pods: int) -> None:
        obj = await crew.jobset()
        size = {"parallelism": pods, "completions": pods}
        obj["spec"]["replicatedJobs"][0]["template"]["spec"] |= size
        await rig.edit({"spec": obj["spec"]})

    await resize(SLOTS_MAX // 2 + 1)  # parallelism of each of two Jobs: the CRD bounds only one Job
    assert "saw 100,002" in (await crew.condition("SpecProblem"))["message"]
    assert (await crew.jobs())["train-workers-0"]["spec"]["parallelism"] == 1
    await resize(1)
    assert (await crew.condition("SpecProblem"))["status"] == "False"
    await rig.meet(crew, 2, 0.1)
    assert await crew.epochs() == (2, 1)


async def test_a_deadline_that_only_a_ghost_holds_up_is_told_once(rig: Rig) -> None:
    """When only a ghost holds the barrier up, the deadline names it once, and no pass repeats without a pause."""
    crew = await rig.started(jobset(annotations={wire.BARRIER: "60"}))
    ghost = await crew.replace("train-workers-0", 7)
    await rig.meet(crew, 2, 1.0)
    named = {"controller": "jobset", "result": "requeue_after"}
    before = rig.sample("controller_runtime_reconcile_total", **named)
    await rig.settle(62.0)
    (event,) = await rig.events("BarrierDeadlineExceeded")
    assert f"2/2 at epoch 2; waiting for pod {ghost} (in no slot of the group" in event["note"]
    assert "if it does not end, delete it" in event["note"]
    after = rig.sample("controller_runtime_reconcile_total", **named)
    assert 0 < after - before <= PASSES_A_MINUTE_MAX


def test_a_plan_for_many_jobs_holds_none_of_them() -> None:
    """Jobs are built one by one at their creation, so a plan for 1,000 Jobs holds no 200 MB of manifests."""
    env = [{"name": f"E{number}", "value": "x" * 100} for number in range(250)]
    template = {"spec": {"containers": [{"name": "worker", "image": "worker:1", "env": env}]}}
    world = PlannerWorld(jobset(jobs=[replicated_job(replicas=1_000, pods=1, template=template)]))
    observed = world.observed()
    tracemalloc.start()
    planned = plan(observed)
    _, peak_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len([action for action in planned.actions if isinstance(action, CreateJob)]) == 1_000
    assert peak_bytes < 2_000_000


async def test_a_pass_is_bounded_however_many_jobs_are_missing(rig: Rig) -> None:
    """A pass creates at most 500 Jobs, so that a suspend does not wait for thousands of others."""
    rig.latency_s = lambda request: 1.0 if request.method == "POST" and "/jobs" in request.path else 0.0
    crew = await rig.submit(jobset(jobs=[replicated_job(replicas=ACTIONS_MAX + 100, pods=1)]))
    await rig.edit({"spec": {"suspend": True}}, 20.0)
    jobs = await crew.jobs()
    assert len(jobs) == ACTIONS_MAX + 100
    born_running = [job for job in rig.requests if job.method == "POST" and b'"suspend":false' in job.body]
    assert ACTIONS_MAX - 10 < len(born_running) <= ACTIONS_MAX
    assert all(job["spec"]["suspend"] for job in jobs.values())


async def test_a_pass_is_bounded_however_large_the_jobs_are(rig: Rig) -> None:
    """At most two megabytes of Jobs are being created at once."""
    asked_s: list[float] = []

    def latency_s(request: Request) -> float:
        if request.method != "POST" or "/jobs?" not in request.path:
            return 0.0
        asked_s.append(rig.clock.monotonic_s())
        return 1.0

    rig.latency_s = latency_s
    container = {"name": "worker", "image": "worker:1", "env": [{"name": "PADDING", "value": "x" * 300_000}]}
    template = {"spec": {"containers": [container]}}
    crew = await rig.submit(jobset(jobs=[replicated_job(replicas=30, pods=1, template=template)]))
    await rig.settle(30.0)
    assert len(await crew.jobs()) == 30
    most = max(sum(now_s <= at_s < now_s + 1.0 for at_s in asked_s) for now_s in asked_s)
    assert 2 < most <= BYTES_MAX // 300_000 + 1


names = st.sampled_from(["a", "a-1", "1", "a-01", "b-2147483648"])


@given(st.dictionaries(names, st.integers(-1, 12), max_size=4), st.text("a-01b23", max_size=12))
def test_a_job_name_is_read_back_as_a_list_of_all_names_would(sizes: dict[str, int], rest: str) -> None:
    """A Job name is found exactly when a list of all names has it, also with hyphens, digits and leading zeros."""
    jobs = [ReplicatedJob(name, replicas, "default") for name, replicas in sizes.items()]
    dumb = {f"js-{job.name}-{index}": (job.name, index) for job in jobs for index in range(job.replicas)}
    places = Places("js", jobs)
    assert (dict(places), len(places)) == (dumb, len(dumb))
    assert [places.position(name) for name in dumb] == list(range(len(dumb)))
    for name in (f"js-{rest}", rest, f"js-a-{rest}"):
        assert places.get(name) == dumb.get(name)
        assert places.get(name) == dumb.get(name), "the second time it is remembered"


def test_the_first_that_are_missing_are_found_among_any_number() -> None:
    """The first missing slots are found in any group without counting its slots one by one."""
    ledger = Ledger(Shape({"a": (INT32_MAX, INT32_MAX)}))
    found = list(islice(ledger.absent(ledger.next_epoch, ledger.arrived_by_job(ledger.next_epoch)), NAMES_MAX))
    assert found == [(Slot("a", 0, index), ()) for index in range(NAMES_MAX)]


def test_an_index_of_any_length_is_no_place() -> None:
    """A foreign Job's index of 5,000 digits belongs to no place and raises no error."""
    places = Places("js", [ReplicatedJob("a", 1, "default")])
    assert places.get("js-a-" + "1" * 5_000) is None
    assert places.get("js-a-0") == ("a", 0)
