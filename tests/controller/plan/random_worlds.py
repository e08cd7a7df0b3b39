"""Random worlds around a random JobSet: Jobs, status, claims and Pods in any possible state."""

from __future__ import annotations

from functools import cache
from typing import Any

from hypothesis import strategies as st

from inplace.common.jobset.notices import GroupNotice
from inplace.common.kube.resources import KubeObject
from inplace.common.protocol.decision import Decision
from inplace.common.wire import names as wire
from inplace.common.wire.notice import KINDS as NOTICE_KINDS
from inplace.controller.plan.actions import Plan
from inplace.controller.plan.jobs import build_job
from inplace.controller.plan.objects import build_service
from tests.controller.objects import with_identity
from tests.controller.plan.planner_world import NOW, PlannerWorld
from tests.controller.random_specs import JOBS_MAX, RACK, REASONS, STRATEGIES, manifests

PASSES_MAX = 6 + 2 * JOBS_MAX  # a failed Job costs two at most, its verdict and its deletion; the rest is done in six

EARLIER = "2025-12-31T00:00:00Z"
KINDS = ("Completed", "Failed", "Suspended", "RestartingJobSet", "StartupPolicyInProgress", "StartupPolicyCompleted")
COUNTS = st.integers(0, 3)
NOTICES = st.builds(
    GroupNotice,
    st.sampled_from(NOTICE_KINDS),
    st.integers(1, 3),
    st.sampled_from(["", "", "another scope"]),
    st.just(1),
    step=st.none() | COUNTS,
    pod=st.sampled_from("pqrstu"),
)


@st.composite
def worlds(draw: st.DrawFn, *, strategies: tuple[str | None, ...] = STRATEGIES) -> PlannerWorld:
    """Draw a JobSet and its existing objects."""
    world = PlannerWorld(draw(manifests(strategies=strategies)))
    world.manifest["status"] = draw(_statuses(world))
    jobset = world.jobset
    for name, (replicated_job, index) in jobset.places.items():
        if draw(st.integers(0, 4)):
            execution = draw(st.sampled_from([None, 0, world.status.get(wire.EXECUTION_ATTEMPTS)]))
            draw_job(draw, world, name, build_job(jobset, jobset.replicated_job(replicated_job), index, execution))
    if jobset.places and draw(st.integers(0, 4)) == 0:
        replicated_job, index = next(iter(jobset.places.values()))
        stray = build_job(jobset, jobset.replicated_job(replicated_job), index)
        stray["metadata"]["name"] = "stray"
        draw_job(draw, world, "stray", stray)
    world.service = draw(_services(world))
    for claim in jobset.claims:
        _draw_claim(draw, world, jobset.claim_name(claim))
    if jobset.is_placed_exclusively:
        _draw_pods(draw, world)
    if jobset.is_in_place:
        world.decision = draw(_decisions(world))
    world.notices = tuple(draw(st.lists(NOTICES, max_size=6)))
    if draw(st.integers(0, 3)) == 0:
        spoiled = draw(st.sampled_from(["x", {}, [None], []]))
        world.status[wire.NOTICES] = spoiled or [notice.fields() for notice in world.notices[::2]]
    return world


def advance(world: PlannerWorld) -> Plan:
    """Carry out one plan, and show the result to the ledger."""
    planned = world.plan()
    deleted = len(world.deleted)
    world.carry_out(planned)
    places = world.jobset.places
    gone = {places[name] for name in world.deleted[deleted:] if name in places}
    if world.decision is not None:
        seen, (synced, deprecated) = world.decision, world.jobset.epochs
        world.decision = Decision(
            max(seen.synced, synced),
            max(seen.deprecated, deprecated),
            exceeded=seen.exceeded,
            recreate=seen.recreate - gone,
        )
    return planned


def is_idle(planned: Plan) -> bool:
    """Return whether a plan is empty."""
    return not planned.status and not planned.actions and not planned.notes


def draw_job(draw: st.DrawFn, world: PlannerWorld, name: str, job: KubeObject) -> None:
    """Bring a Job into some state, mostly one that the Job controller can cause."""
    uid = f"drawn-{name}"
    job["metadata"] |= {"uid": uid, "resourceVersion": "1"}
    job["spec"]["suspend"] = draw(st.sampled_from([world.jobset.suspended, True, False]))
    status: KubeObject = {"active": draw(COUNTS), "ready": draw(COUNTS), "succeeded": draw(st.sampled_from([0, 0, 1]))}
    if draw(st.booleans()):
        status["startTime"] = EARLIER
    if kind := draw(st.sampled_from([None, None, "Complete", "Failed", "Suspended", "FailureTarget"])):
        status["conditions"] = [draw(_job_conditions(kind))]
    world.jobs[name] = job | {"status": status}
    match draw(st.sampled_from([*["as it is"] * 6, "leaving", "old", "garbage", "resized", "relabelled"])):
        case "leaving":
            job["metadata"]["deletionTimestamp"] = EARLIER
        case "old":
            part = draw(st.sampled_from([wire.RESTART_ATTEMPT, wire.JOB_RESTART_ATTEMPT]))
            _relabel(job, part, "0")
        case "garbage":
            part = draw(st.sampled_from([wire.RESTART_ATTEMPT, wire.JOB_RESTART_ATTEMPT]))
            _relabel(job, part, draw(st.sampled_from([None, "x", "-1", "2147483648"])))
        case "resized":
            job["spec"]["parallelism"] = job["spec"]["completions"] = draw(st.integers(1, 4))
        case "relabelled":
            job["metadata"]["labels"] = {}


def _relabel(job: KubeObject, key: str, value: str | None) -> None:
    for part in ("labels", "annotations"):
        job["metadata"][part].pop(key, None)
        if value is not None:
            job["metadata"][part][key] = value


@cache
def _job_conditions(kind: str) -> st.SearchStrategy[KubeObject]:
    return st.fixed_dictionaries(
        {
            "type": st.just(kind),
            "status": st.sampled_from(["True", "True", "False"]),
            "reason": st.sampled_from(REASONS),
            "message": st.sampled_from(["", "exit code 3", "no"]),
            "lastTransitionTime": st.sampled_from([EARLIER, NOW]),
        }
    )


@st.composite
def _statuses(draw: st.DrawFn, world: PlannerWorld) -> dict[str, Any]:
    """Draw a status: none yet, ours, another controller's, or an edited one."""
    if draw(st.integers(0, 3)) == 0:
        return {}
    restarts = draw(st.integers(0, 2))
    status: dict[str, Any] = {"restarts": restarts, "restartsCountTowardsMax": draw(st.integers(0, restarts))}
    kinds = draw(st.lists(st.sampled_from(KINDS), max_size=3, unique=True))
    ended = [kind for kind in kinds if kind in ("Completed", "Failed")]
    status["conditions"] = [
        {
            "type": kind,
            "status": draw(st.sampled_from(["True", "False"])) if kind not in ended else "True",
            "reason": "Before",
            "message": "before",
            "lastTransitionTime": EARLIER,
        }
        for kind in kinds
        if kind not in ended[1:]
    ]
    if draw(st.booleans()):
        status |= {wire.EXECUTION_ATTEMPTS: draw(COUNTS), wire.START_TIME: draw(st.sampled_from([EARLIER, NOW]))}
    if ended:
        status["terminalState"] = ended[0]
    status["replicatedJobsStatus"] = [
        {"name": job.name, "ready": 0, "succeeded": 0, "failed": 0, "active": 0, "suspended": 0} | draw(_job_counters())
        for job in world.jobset.replicated_jobs
        if draw(st.integers(0, 4))
    ]
    if world.jobset.is_in_place:
        synced = draw(st.integers(0, 3))
        status |= wire.status_of_epochs(synced, draw(st.integers(max(0, synced - 1), synced + 1)))  # S may be lost
        exempt = draw(st.integers(0, max(0, synced - 1)))
        status |= draw(st.sampled_from([{}, {wire.EXEMPT_EPOCHS: exempt, wire.LAST_EXEMPT_EPOCH: exempt and synced}]))
    kept = draw(st.sets(st.sampled_from(sorted(status)), max_size=2))  # fields that a half-written status lacks
    return {name: value for name, value in status.items() if name not in kept - {"terminalState", "conditions"}}


@st.composite
def _job_counters(draw: st.DrawFn) -> dict[str, list[int]]:
    restarts = draw(st.lists(st.integers(0, 1), max_size=3))
    return {"jobRestarts": restarts, "jobRestartsCountTowardsMax": restarts} if restarts else {}


@st.composite
def _services(draw: st.DrawFn, world: PlannerWorld) -> KubeObject | None:
    """Draw the Service: none, ours, or another's, with ports or without."""
    service = with_identity(build_service(world.jobset))
    ports = [{"name": "tcp-1", "protocol": "TCP", "port": 1, "targetPort": 1}]
    service["spec"] |= draw(st.sampled_from([{}, {"ports": ports}, {"ports": []}]))
    if draw(st.booleans()):
        service["metadata"]["ownerReferences"] = []
    return service if draw(st.booleans()) else None


def _draw_claim(draw: st.DrawFn, world: PlannerWorld, name: str) -> None:
    kind = draw(st.sampled_from(["absent", "ours", "made by hand", "another's", "leaving"]))
    if kind == "absent":
        return
    metadata: KubeObject = {"name": name, "uid": f"uid-{name}", "resourceVersion": "1"}
    if kind in ("ours", "another's"):
        owner = "js-uid" if kind == "ours" else "other"
        metadata["ownerReferences"] = [{"kind": wire.KIND, "uid": owner, "controller": True}]
    if kind == "leaving":
        metadata["deletionTimestamp"] = EARLIER
    world.claims[name] = {"metadata": metadata, "spec": {"resources": {"requests": {"storage": "1Gi"}}}}


def _draw_pods(draw: st.DrawFn, world: PlannerWorld) -> None:
    """Let some Pods wait behind gates, ours and others', with leaders that have a node, or not."""
    for name in world.jobs:
        world.pods[name] = [
            {
                "metadata": {
                    "name": f"{name}-{index}",
                    "uid": f"{name}-{index}",
                    "resourceVersion": "1",
                    "labels": {wire.JOB_COMPLETION_INDEX: str(index)},
                },
                "spec": {"schedulingGates": [{"name": gate} for gate in draw(_gates())]}
                | draw(st.sampled_from([{}, {"nodeName": "node-1"}, {"nodeName": "node-2"}])),
                "status": {"phase": draw(st.sampled_from(["Pending", "Pending", "Running", "Failed"]))},
            }
            for index in range(draw(st.integers(0, 2)))
        ]
    world.domains[("node-1", RACK)] = "rack-1"
    world.asked_domains = draw(st.sampled_from([{}, {f"{name}-1": "rack-2" for name in world.jobs}]))


@cache
def _gates() -> st.SearchStrategy[list[str]]:
    return st.lists(st.sampled_from([wire.PLACEMENT_GATE, "example.com/quota"]), max_size=2, unique=True)


@st.composite
def _decisions(draw: st.DrawFn, world: PlannerWorld) -> Decision:
    """Draw decisions that a ledger could make with this status."""
    synced, deprecated = world.jobset.epochs
    places = sorted(world.jobset.places.values())
    recreate = draw(st.frozensets(st.sampled_from(places), max_size=2)) if places else frozenset()
    match draw(st.sampled_from(["as it is", "begin", "end", "exceeded"])):
        case "begin":
            return Decision(synced, synced, recreate=recreate if synced > 0 else frozenset())
        case "end":
            return Decision(synced + 1, deprecated)
        case "exceeded":
            return Decision(synced, deprecated, exceeded=True)
    is_restarting = 0 < synced <= deprecated
    return Decision(synced, deprecated, recreate=recreate if is_restarting else frozenset())
