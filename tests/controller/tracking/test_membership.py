"""Membership: Pods, Jobs and JobSets arrive in any order; and the fields that are read of a Pod."""

from itertools import permutations
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inplace.common.jobset.note import Note
from inplace.common.jobset.scopes import WHOLE
from inplace.common.protocol.pod_view import PodLife, Worker
from inplace.common.wire import names as wire
from inplace.controller.tracking.gathering import REST_S_MAX, REST_S_PER_SLOT
from inplace.controller.tracking.group import Key
from inplace.controller.tracking.pods import life_of, read_pod, worker_of
from tests.controller.objects import make_job, make_jobset, make_membership, make_pod

pytestmark = pytest.mark.virtual_time

NOW = "2026-01-01T00:00:00Z"


class World:
    """A membership whose requested passes are recorded."""

    def __init__(self) -> None:
        self.woken: list[tuple[Key, float]] = []
        self.warnings: list[Note] = []
        self.membership = make_membership(
            lambda key, delay_s: self.woken.append((key, delay_s)), lambda _, note: self.warnings.append(note)
        )

    def decided(self) -> tuple[int, int] | None:
        """Return the decision of the JobSet's ledger."""
        group = self.membership.get(("default", "train"))
        decision = group.decisions().get(WHOLE) if group is not None else None
        return (decision.synced, decision.deprecated) if decision is not None else None


async def test_the_order_in_which_things_become_known_does_not_matter() -> None:
    """JobSet, Job and Pods in any order give the same decision."""
    for order in permutations(range(4)):
        world = World()
        events = (
            lambda membership: membership.jobset_changed(None, make_jobset()),
            lambda membership: membership.job_changed(None, make_job()),
            lambda membership: membership.pod_changed(None, make_pod(0, 1)),
            lambda membership: membership.pod_changed(None, make_pod(1, 1)),
        )
        for position in order:
            events[position](world.membership)
        assert world.decided() == (1, 0), order
        assert world.woken


def filled(**status: Any) -> World:
    """Return a world with a running group of two."""
    world = World()
    world.membership.jobset_changed(None, make_jobset(**status))
    world.membership.job_changed(None, make_job())
    for index in range(2):
        world.membership.pod_changed(None, make_pod(index, 1))
    world.membership.jobset_changed(make_jobset(), make_jobset(version=2, syncedEpoch=1))
    world.woken.clear()
    return world


async def test_a_pod_event_that_changes_nothing_wakes_nobody() -> None:
    """A status update of a running group's Pod causes no pass."""
    world = filled()
    status = {"phase": "Running", "containerStatuses": [{"name": "w", "containerID": "c", "state": {"running": {}}}]}
    world.membership.pod_changed(make_pod(0, 1), make_pod(0, 1, status=status))
    assert world.woken == []
    world.membership.pod_changed(make_pod(0, 1), make_pod(0, 2))
    assert world.woken == [(("default", "train"), 0.0)]


async def test_the_reader_is_told_how_many_pods_a_barrier_waits_for() -> None:
    """An announcement shortens the rest to what the missing Pods are worth; a status update does not."""
    world = filled()
    gathering = world.membership.gathering
    gathering.rest_s(0)  # begins anew
    world.membership.pod_changed(make_pod(0, 1), make_pod(0, 1, status={"phase": "Running"}))
    assert gathering.rest_s(0) == REST_S_MAX
    world.membership.pod_changed(make_pod(0, 1), make_pod(0, 2))
    assert gathering.rest_s(0) == REST_S_PER_SLOT
    world.membership.pod_changed(make_pod(1, 1), make_pod(1, 2))
    assert gathering.rest_s(0) == 0.0


async def test_pods_of_a_job_that_is_leaving_do_not_complete_a_group() -> None:
    """Pods of a Job that is being deleted do not complete a group; their replacements do, once they are gone."""
    world = filled()
    world.membership.job_changed(make_job(), make_job(deletionTimestamp=NOW))
    replacement = make_job("job-2")
    for index in range(2):
        world.membership.pod_changed(make_pod(index, 1), make_pod(index, 2))
    assert world.decided() == (1, 0)
    world.membership.job_changed(make_job(deletionTimestamp=NOW), None)
    assert world.decided() == (1, 0)
    world.membership.job_changed(None, replacement)
    for index in range(2):
        world.membership.pod_changed(None, make_pod(index, 2, uid=f"new-{index}", job="job-2"))
    assert world.decided() == (1, 1)
    for index in range(2):
        world.membership.pod_changed(make_pod(index, 2), None)
    assert world.decided() == (2, 0)


@pytest.mark.parametrize(
    ("index", "in_the_way"), [("0", ["p1"]), ("1", ["p0", "p1"]), ("x", ["p0", "p1"]), (None, ["p0", "p1"])]
)
async def test_a_pod_whose_job_is_gone_is_in_the_slot_that_its_labels_name(
    index: str | None, in_the_way: list[str]
) -> None:
    """In a group with spares its worker may wait for an epoch unseen: then what counts is which slot it has."""
    world = filled()
    labels = {wire.JOBSET_UID: "js", wire.REPLICATED_JOB_NAME: "workers", wire.JOB_COMPLETION_INDEX: "0"}
    labels |= {wire.JOB_INDEX: index} if index is not None else {}
    world.membership.job_changed(make_job(), None)
    leaving = make_pod(0, 1, metadata={"labels": labels, "deletionTimestamp": NOW})
    world.membership.pod_changed(make_pod(0, 1), leaving)
    group = world.membership.get(("default", "train"))
    assert group is not None
    assert group.ledgers[WHOLE].ledger.names_in_the_way().get("ghost", []) == in_the_way


async def test_a_job_of_an_earlier_restart_does_not_count() -> None:
    """When status.restarts grows, the Pods of the old Jobs count as leaving at once."""
    world = filled()
    world.membership.pod_changed(make_pod(0, 1), make_pod(0, 2))
    assert world.decided() == (1, 1)
    world.membership.jobset_changed(None, make_jobset(version=3, syncedEpoch=1, restarts=1))
    assert world.decided() == (1, 0)
    for index in range(2):
        world.membership.pod_changed(make_pod(index, 1), make_pod(index, 2))
    assert world.decided() == (1, 0)


async def test_another_jobsets_pods_are_ignored_whatever_their_labels_say() -> None:
    """A Pod counts for the JobSet that owns its Job."""
    world = filled()
    world.membership.job_changed(None, make_job("foreign", owner="other"))
    world.membership.pod_changed(None, make_pod(0, 2, uid="spy", job="foreign"))
    assert world.decided() == (1, 0)
    assert world.woken == []


async def test_a_pod_that_loses_its_owner_is_forgotten() -> None:
    """A Pod that loses its owner is forgotten; its slot waits for another Pod."""
    world = filled()
    world.membership.pod_changed(make_pod(0, 1), make_pod(0, 1, metadata={"ownerReferences": []}))
    group = world.membership.get(("default", "train"))
    assert group is not None
    assert group.ledgers[WHOLE].ledger.histogram() == {1: 1}


async def test_a_deleted_jobset_is_forgotten_and_cleaned_up_after() -> None:
    """A deleted JobSet gets one pass for cleaning up; its later events are ignored."""
    world = filled()
    world.membership.jobset_changed(make_jobset(version=2), None)
    assert world.woken == [(("default", "train"), 0.0)]
    world.membership.pod_changed(make_pod(0, 1), make_pod(0, 2))
    assert world.membership.get(("default", "train")) is None


async def test_an_unreadable_status_is_reported_and_left_alone() -> None:
    """A JobSet with unreadable epochs is reported, and not decided on until it changes."""
    world = World()
    world.membership.jobset_changed(None, make_jobset(syncedEpoch="many"))
    assert world.membership.get(("default", "train")) is None
    assert [note.reason for note in world.warnings] == ["UnreadableJobSet"]
    world.membership.jobset_changed(None, make_jobset(version=2, syncedEpoch=1))
    assert world.membership.get(("default", "train")) is not None


async def test_a_jobset_of_a_billion_jobs_is_left_alone() -> None:
    """A JobSet of a billion Jobs is not counted and takes no memory for its slots."""
    world = World()
    huge = make_jobset()
    huge["spec"]["replicatedJobs"][0]["replicas"] = 10**9
    world.membership.jobset_changed(None, huge)
    group = world.membership.get(("default", "train"))
    assert group is not None
    assert (group.ledgers, len(group.jobset.places)) == ({}, 10**9)
    world.membership.job_changed(None, make_job())
    world.membership.pod_changed(None, make_pod(0, 1))
    assert (group.is_due, world.warnings) == (False, [])


@pytest.mark.parametrize("claims_job", [False, True])
async def test_pods_of_another_namespace_are_nobodys(claims_job: bool) -> None:
    """A Pod of another namespace that claims our Job or JobSet is no ghost, no double and no announcement."""
    world = filled()
    elsewhere = {"namespace": "elsewhere"}
    owner = "job" if claims_job else "no-such-job"
    for index in (0, 1, 7):
        stranger = make_pod(index, 2, uid=f"stranger-{index}", job=owner, metadata=elsewhere)
        world.membership.pod_changed(None, stranger)
    assert world.decided() == (1, 0)
    world.membership.pod_changed(make_pod(0, 1), make_pod(0, 2))
    world.membership.pod_changed(make_pod(1, 1), make_pod(1, 2))
    assert world.decided() == (2, 0)
    assert len(world.membership.pods_of(make_job())) == 2


async def test_a_job_of_another_namespace_is_nobodys() -> None:
    """A Job of another namespace that claims our JobSet neither takes a place nor frees one."""
    world = filled()
    group = world.membership.get(("default", "train"))
    assert group is not None
    stranger = make_job("stranger", namespace="elsewhere")
    world.woken.clear()
    world.membership.job_changed(None, stranger)
    world.membership.job_changed(stranger, None)
    assert [job.metadata.uid for job in world.membership.jobs_of(group.jobset).values()] == ["job"]
    assert world.woken == []


async def test_a_broken_pod_is_reported_once() -> None:
    """The Warning comes with the broken annotation, not with every later event of the Pod."""
    world = filled()
    world.membership.pod_changed(make_pod(0, 1), make_pod(0, "junk"))
    world.membership.pod_changed(make_pod(0, "junk"), make_pod(0, "junk", status={"phase": "Running"}))
    assert [note.reason for note in world.warnings] == ["UnreadablePod"]


@pytest.mark.parametrize(
    ("phase", "leaving", "current", "life"),
    [
        ("Running", False, True, PodLife.LIVE),
        ("Pending", False, True, PodLife.LIVE),
        ("Unknown", False, True, PodLife.LIVE),
        ("Running", True, True, PodLife.LEAVING),
        ("Running", False, False, PodLife.LEAVING),
        ("Failed", True, True, PodLife.FAILED),
        ("Failed", False, False, PodLife.FAILED),
        ("Succeeded", False, True, PodLife.SUCCEEDED),
        ("Succeeded", True, True, PodLife.FAILED),
    ],
)
def test_life(phase: str, leaving: bool, current: bool, life: PodLife) -> None:
    """A Pod is live when its Job is current and it may run; leaving while its containers may still run."""
    metadata = {"deletionTimestamp": NOW} if leaving else {}
    assert life_of(make_pod(0, 1, metadata=metadata, status={"phase": phase}), current=current) is life


def test_a_pod_of_an_old_job_matters_only_while_it_may_run() -> None:
    """An ended Pod of an old Job is forgotten and does not cause its Job's recreation."""
    done = make_pod(0, 1, status={"phase": "Succeeded"})
    assert read_pod(done, ("workers", 0), current=False).view is None


def test_the_worker_is_all_regular_containers_together() -> None:
    """The worker runs if a regular container runs, failed if one failed, and has one instance name for all."""
    statuses = [
        {"name": "a", "containerID": "c2", "state": {"terminated": {"exitCode": 3}}},
        {"name": "b", "containerID": "c1", "state": {"running": {}}},
        {"name": "c", "state": {"waiting": {"reason": "ContainerCreating"}}},
    ]
    assert worker_of(make_pod(0, 1, status={"containerStatuses": statuses})) == Worker("c1,c2", True, True)


@given(st.text(max_size=12), st.text(max_size=12))
def test_no_annotation_can_break_the_reader(epoch: str, index: str) -> None:
    """With any annotations a Pod is read: as announcing an epoch or none, in a slot or in none."""
    pod = make_pod(0, 1, metadata={"annotations": {wire.EPOCH: epoch}, "labels": {wire.JOB_COMPLETION_INDEX: index}})
    reading = read_pod(pod, ("workers", 0), current=True)
    assert reading.view is not None
    assert reading.view.epoch is None or 1 <= reading.view.epoch < 2**31
    assert (reading.view.slot.completion_index == -1) or index.isdigit()
