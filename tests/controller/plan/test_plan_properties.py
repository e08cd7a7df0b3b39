"""Properties of every plan for any spec and any world, compared with a second, simple implementation of the rules."""

import re
from collections.abc import Iterator
from copy import deepcopy
from datetime import datetime
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from inplace.common.jobset.notices import notices_of
from inplace.common.kube.resources import KubeObject
from inplace.common.wire import names as wire
from inplace.controller.plan.actions import (
    Action,
    CreateClaim,
    CreateJob,
    CreateService,
    DeleteJob,
    DeleteJobSet,
    LiftGate,
    Plan,
    ResizeJob,
    ResumeJob,
    SuspendJob,
    UpdateService,
)
from tests.controller.plan.planner_world import PlannerWorld
from tests.controller.plan.random_worlds import PASSES_MAX, advance, is_idle, worlds
from tests.controller.random_specs import RACK, with_defaults, without_defaults

REASON = re.compile(r"^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$")  # the CRD's pattern, and metav1.Condition's


def steps(world: PlannerWorld) -> Iterator[tuple[PlannerWorld, Plan]]:
    """Carry out plans until one is empty; yield each with its world."""
    for _ in range(PASSES_MAX):
        before = deepcopy(world)
        planned = advance(world)
        yield before, planned
        if is_idle(planned):
            return
    raise AssertionError(f"not settled after {PASSES_MAX} passes: {world.plan()!r}")


def settle(world: PlannerWorld) -> None:
    """Carry out plans until one is empty."""
    for _ in steps(world):
        pass


@given(worlds())
def test_plans_converge_and_then_ask_for_nothing(world: PlannerWorld) -> None:
    """From any state plans become empty within PASSES_MAX passes and stay empty."""
    settle(world)
    assert is_idle(advance(world))
    assert is_idle(world.plan())


@given(worlds())
def test_planning_changes_nothing_and_is_repeatable(world: PlannerWorld) -> None:
    """Planning twice from one state gives equal plans and changes no input."""
    untouched = deepcopy(world)
    planned = world.plan()
    assert world == untouched
    assert planned == untouched.plan()


@given(worlds())
def test_a_plan_deletes_only_what_must_go(world: PlannerWorld) -> None:
    """A Job is deleted for one of six reasons; every other Job is kept."""
    for before, planned in steps(world):
        for action in planned.actions:
            if isinstance(action, DeleteJob):
                assert must_go(before, before.jobs[action.name]), action


def must_go(world: PlannerWorld, job: KubeObject) -> bool:
    """Return whether a Job may be deleted, by a second implementation on the raw objects."""
    metadata, status = job["metadata"], world.status
    if "deletionTimestamp" in metadata:
        return False
    _, replicated_job, index = [*metadata["name"].split("-"), "", ""][:3]
    is_expected = metadata["name"] in world.jobset.places
    attempt, job_attempt = number(metadata, wire.RESTART_ATTEMPT), number(metadata, wire.JOB_RESTART_ATTEMPT)
    if is_absent(metadata, wire.JOB_RESTART_ATTEMPT):
        job_attempt = 0
    if attempt is not None and attempt < status.get("restarts", 0):
        return True  # of an earlier restart
    if not is_expected:
        return False  # no replicatedJob wants it
    if attempt is None or job_attempt is None or job_attempt < job_restarts(status, replicated_job, int(index)):
        return True  # unreadable: a new one is made; or restarted alone
    ended = {c["type"] for c in status_of(job).get("conditions", ()) if c["status"] == "True"} & {"Complete", "Failed"}
    if ended_as(world):
        return not ended  # active after the JobSet's end
    if is_over(world):
        return not ended
    if is_astray(world, metadata["name"]):
        return not ended
    synced, deprecated = world.jobset.epochs
    is_restarting = world.decision is not None and 0 < synced <= deprecated
    is_named = world.decision is not None and (replicated_job, int(index)) in world.decision.recreate
    completed = "Complete" in ended or bool(status_of(job).get("succeeded"))
    is_member = not world.jobset.replicated_job(replicated_job).has_opted_out
    return is_member and (is_named or (is_restarting and completed))  # its Pods cannot restart in place


def is_over(world: PlannerWorld) -> bool:
    """Return whether a JobSet was active for longer than its deadline."""
    deadline_s, began = world.manifest["spec"].get("activeDeadlineSeconds"), world.status.get(wire.START_TIME)
    if deadline_s is None or began is None or world.manifest["spec"].get("suspend"):
        return False
    active_s = (datetime.fromisoformat(world.now) - datetime.fromisoformat(began)).total_seconds()
    return bool(active_s >= deadline_s)


def is_astray(world: PlannerWorld, job: str) -> bool:
    """Return whether a Pod of a Job waits for a domain that its leader, which has a node, is not in."""
    pods = [pod for pod in world.pods.get(job, ()) if pod["status"]["phase"] in ("Pending", "Running")]
    leaders = [pod for pod in pods if pod["metadata"]["name"] == f"{job}-0" and pod["spec"].get("nodeName")]
    followers = [pod for pod in pods if pod["metadata"]["name"] != f"{job}-0"]
    gated = {"name": wire.PLACEMENT_GATE}
    waiting = [
        pod for pod in followers if "nodeName" not in pod["spec"] and gated not in pod["spec"]["schedulingGates"]
    ]
    domains = {world.domains.get((pod["spec"]["nodeName"], RACK)) for pod in leaders} - {None}
    return any(world.asked_domains.get(pod["metadata"]["uid"], "rack-1") not in domains for pod in waiting if domains)


def number(metadata: KubeObject, key: str) -> int | None:
    """Read a count that is a label, or an annotation when the label is broken."""
    for part in ("labels", "annotations"):
        text = metadata.get(part, {}).get(key, "")
        if text.isdigit() and int(text) < 2**31:
            return int(text)
    return None


def is_absent(metadata: KubeObject, key: str) -> bool:
    """Return whether a key is neither a label nor an annotation."""
    return all(key not in metadata.get(part, {}) for part in ("labels", "annotations"))


def job_restarts(status: KubeObject, replicated_job: str, index: int) -> int:
    """Read how often one Job alone was restarted."""
    for entry in status.get("replicatedJobsStatus", ()):
        if entry["name"] == replicated_job:
            return int([*entry.get("jobRestarts", ()), 0, 0, 0][index])
    return 0


def status_of(job: KubeObject) -> KubeObject:
    """Return the status of a Job."""
    status: KubeObject = job.get("status", {})
    return status


def ended_as(world: PlannerWorld) -> set[str]:
    """Return which terminal conditions are True."""
    conditions = world.status.get("conditions", ())
    return {c["type"] for c in conditions if c["status"] == "True"} & {"Completed", "Failed"}


@given(worlds(), st.sampled_from(["leaving", "managed by another"]))
def test_what_is_not_ours_is_not_touched(world: PlannerWorld, how: str) -> None:
    """A JobSet that is being deleted, or that another controller manages, gets no status, action or Event."""
    if how == "leaving":
        world.manifest["metadata"]["deletionTimestamp"] = world.now
    else:
        world.manifest["spec"]["managedBy"] = "example.com/other"
        world.manifest["spec"].pop("ttlSecondsAfterFinished", None)
    planned = world.plan()
    assert is_idle(planned)
    assert planned.warnings == ()


@given(worlds())
def test_actions_name_what_is_there_and_make_what_is_not(world: PlannerWorld) -> None:
    """Actions name objects by name AND UID; no taken name is used again, and each object has at most one action."""
    for before, planned in steps(world):
        touched: list[tuple[type[Action], str]] = []
        for action in planned.actions:
            match action:
                case DeleteJob(name, uid) | SuspendJob(name, uid) | ResumeJob(name, uid) | ResizeJob(name, uid):
                    assert before.jobs[name]["metadata"]["uid"] == uid
                    assert "deletionTimestamp" not in before.jobs[name]["metadata"]
                    touched.append((type(action), name))
                case CreateJob(manifest):
                    assert manifest["metadata"]["name"] not in before.jobs
                    assert manifest["metadata"]["name"] in before.jobset.places
                    touched.append((CreateJob, manifest["metadata"]["name"]))
                case CreateService(_):
                    assert before.service is None
                    touched.append((CreateService, ""))
                case UpdateService(service, ports):
                    assert before.service is not None
                    assert service.metadata.uid == before.service["metadata"]["uid"]
                    assert before.service["metadata"]["ownerReferences"][0]["uid"] == "js-uid"
                    assert (before.service["spec"].get("ports") or []) != list(ports)
                    touched.append((UpdateService, ""))
                case CreateClaim(manifest):
                    assert manifest["metadata"]["name"] not in before.claims
                    touched.append((CreateClaim, manifest["metadata"]["name"]))
                case LiftGate(pod):
                    assert pod.is_gated
                    touched.append((LiftGate, pod.metadata.uid))
                case DeleteJobSet(uid):
                    assert uid == before.jobset.uid
                    assert ended_as(before)
                    touched.append((DeleteJobSet, ""))
        assert len(touched) == len(set(touched))
        deleted = {name for kind, name in touched if kind is DeleteJob}
        assert not [name for kind, name in touched if name in deleted and kind is not DeleteJob]


@given(worlds())
def test_nothing_runs_that_must_not(world: PlannerWorld) -> None:
    """A suspended JobSet starts no Job; a finished one creates none, and in the end none of its Jobs runs."""
    for before, planned in steps(world):
        created = [action.manifest["spec"] for action in planned.actions if isinstance(action, CreateJob)]
        resumed = [action for action in planned.actions if isinstance(action, ResumeJob)]
        if before.manifest["spec"].get("suspend"):
            assert not resumed
            assert all(spec["suspend"] for spec in created)
        if ended_as(before):
            assert not resumed
            assert not created
    if ended_as(world) and not world.is_deleted:
        for name in world.jobset.places.keys() & world.jobs.keys():
            job = world.jobs[name]
            ended = [c for c in status_of(job).get("conditions", ()) if c["status"] == "True"]
            assert "deletionTimestamp" in job["metadata"] or {c["type"] for c in ended} & {"Complete", "Failed"}


@given(worlds())
def test_in_the_end_every_place_that_is_due_has_its_job(world: PlannerWorld) -> None:
    """An unfinished JobSet has all its Jobs, unless an order, a missing claim or a blocking Job prevents it."""
    settle(world)
    jobset = world.jobset
    blocked = any("deletionTimestamp" in obj["metadata"] for obj in [*world.jobs.values(), *world.claims.values()])
    foreign = any(owner["uid"] != "js-uid" for claim in world.claims.values() for owner in owners(claim))
    if not (ended_as(world) or jobset.has_order or blocked or foreign):
        assert jobset.places.keys() <= world.jobs.keys()
        assert world.service is not None or not jobset.network.dns_hostnames


def owners(obj: KubeObject) -> list[KubeObject]:
    """Return the owner references of an object."""
    return list(obj["metadata"].get("ownerReferences", ()))


@given(worlds())
def test_restarts_are_counted_and_bounded(world: PlannerWorld) -> None:
    """No counter goes down, and counted restarts exceed maxRestarts only if they did before."""
    policy = world.manifest["spec"].get("failurePolicy") or {}
    most = max(world.jobset.recreations_counted, policy.get("maxRestarts", 0))
    for _ in range(3):
        for before, _planned in steps(world):
            pairs = zip(counters_of(before), counters_of(world), strict=True)
            assert all(earlier <= later for earlier, later in pairs)
        assert world.jobset.recreations_counted <= most
        for name in world.jobs:
            world.set_job(name, "Failed")


def counters_of(world: PlannerWorld) -> list[int]:
    """Return every counter that only grows."""
    jobset = world.jobset
    jobs = [jobset.job_restarts_of(*place) for place in jobset.places.values()]
    epochs = [count for scope in jobset.scopes.values() for count in (scope.synced, scope.deprecated, scope.exempt)]
    executions = world.status.get(wire.EXECUTION_ATTEMPTS, 0)
    return [jobset.restarts, jobset.restarts_counted, executions, *epochs, *jobs]


@given(worlds(), st.data())
def test_terminal_is_terminal(world: PlannerWorld, data: st.DataObject) -> None:
    """A finished JobSet keeps its end, whatever its Jobs do; terminalState and condition agree."""
    settle(world)
    ended = ended_as(world)
    if not ended:
        return
    end = (world.status.get("terminalState"), [c for c in world.status["conditions"] if c["type"] in ended])
    assert world.status.get("terminalState") in ended
    for name in list(world.jobs):
        world.set_job(name, data.draw(st.sampled_from(["Failed", "Complete", None])))
    settle(world)
    assert (world.status.get("terminalState"), [c for c in world.status["conditions"] if c["type"] in ended]) == end


@given(worlds())
def test_conditions_are_well_formed(world: PlannerWorld) -> None:
    """Conditions have unique types, a new time exactly when the status changed, and the deciding generation."""
    for before, planned in steps(world):
        old = {c["type"]: c for c in before.status.get("conditions", ())}
        conditions = planned.status.get("conditions", ())
        assert len({c["type"] for c in conditions}) == len(conditions)
        assert not old or not conditions or old.keys() <= {c["type"] for c in conditions}
        for condition in conditions:
            assert condition.keys() >= {"type", "status", "reason", "message", "lastTransitionTime"}
            assert REASON.match(condition["reason"])
            assert condition["status"] in ("True", "False")
            known = old.get(condition["type"])
            if known is None:
                assert condition["status"] == "True"
            if known is None or known["status"] != condition["status"]:
                assert condition["lastTransitionTime"] == before.now
            else:
                assert condition["lastTransitionTime"] == known["lastTransitionTime"]
            if known is None or (known["reason"], known["message"]) != (condition["reason"], condition["message"]):
                assert condition["observedGeneration"] == before.manifest["metadata"]["generation"]


@given(worlds())
def test_the_counts_of_jobs_are_exact(world: PlannerWorld) -> None:
    """`replicatedJobsStatus` equals a count by hand, one entry per replicatedJob, names descending."""
    for _before, planned in steps(world):
        if "replicatedJobsStatus" in planned.status:
            entries = planned.status["replicatedJobsStatus"]
            names = [entry["name"] for entry in entries]
            assert names == sorted(names, reverse=True)
    if not world.is_deleted:
        assert sorted(world.status.get("replicatedJobsStatus", ()), key=str) == sorted(recount(world), key=str)


def recount(world: PlannerWorld) -> list[KubeObject]:
    """Count the Jobs of each replicatedJob by hand."""
    known = {entry["name"]: entry for entry in world.status.get("replicatedJobsStatus", ())}
    entries = []
    for replicated_job in world.manifest["spec"]["replicatedJobs"]:
        name = replicated_job["name"]
        counts = dict.fromkeys(("ready", "succeeded", "failed", "active", "suspended"), 0)
        for index in range(replicated_job.get("replicas", 1)):
            job = world.jobs.get(f"train-{name}-{index}")
            if job is None or is_of_the_past(world, job, name, index):
                continue
            status, spec = status_of(job), job["spec"]
            ended = {c["type"] for c in status.get("conditions", ()) if c["status"] == "True"}
            if "Failed" in ended:
                counts["failed"] += 1
            elif "Complete" in ended:
                counts["succeeded"] += 1
            else:
                wanted = min(spec["parallelism"], spec.get("completions", spec["parallelism"]))
                counts["ready"] += status.get("succeeded", 0) + status.get("ready", 0) >= wanted
                counts["active"] += status.get("active", 0) > 0
                counts["suspended"] += spec["suspend"]
        entries.append(known[name] | counts | {"name": name})
    return entries


def is_of_the_past(world: PlannerWorld, job: KubeObject, replicated_job: str, index: int) -> bool:
    """Return whether a Job is of an earlier restart, or unreadable."""
    metadata = job["metadata"]
    attempt, job_attempt = number(metadata, wire.RESTART_ATTEMPT), number(metadata, wire.JOB_RESTART_ATTEMPT)
    if is_absent(metadata, wire.JOB_RESTART_ATTEMPT):
        job_attempt = 0
    if attempt is None or job_attempt is None:
        return True
    return attempt < world.status.get("restarts", 0) or job_attempt < job_restarts(world.status, replicated_job, index)


@given(worlds())
def test_absent_and_default_are_one(world: PlannerWorld) -> None:
    """The plan for a spec with every default written out is the plan for the spec without any."""
    plans: list[Plan] = []
    for change in (with_defaults, without_defaults):
        world.manifest["spec"] = change(world.manifest)["spec"]
        plans.append(world.plan())
    assert plans[0] == plans[1]


@given(worlds(), st.data())
def test_fields_of_others_in_the_status_survive(world: PlannerWorld, data: st.DataObject) -> None:
    """Conditions and fields of other writers stay as they are."""
    foreign: dict[str, Any] = {
        "type": "Admitted",
        "status": data.draw(st.sampled_from(["True", "False", "Unknown"])),
        "reason": "Theirs",
        "message": "theirs",
        "lastTransitionTime": "2020-01-01T00:00:00Z",
    }
    world.status["conditions"] = [foreign, *world.status.get("conditions", ())]
    world.status["theirs"] = 1
    settle(world)
    assert foreign in world.status["conditions"]
    assert world.status["theirs"] == 1


@given(worlds())
def test_only_notices_of_epochs_that_run_are_written(world: PlannerWorld) -> None:
    """Whatever Pods told, and whatever stood there; the write that ends the JobSet drops them all."""
    planned = world.plan()
    world.carry_out(planned)
    if planned.status.get("terminalState"):
        assert wire.NOTICES not in world.status
    elif wire.NOTICES in planned.status:
        running = {name: scope.synced for name, scope in world.jobset.scopes.items() if scope.is_running}
        assert all(running.get(one.scope) == one.epoch for one in notices_of(world.status))
