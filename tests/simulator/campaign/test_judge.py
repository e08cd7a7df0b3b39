"""The judge finds every property when it is broken."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from random import Random
from typing import Any

import pytest

from inplace.common.kube.resources import JOBSETS
from inplace.common.protocol.rank import StallSettings
from inplace.common.wire import names as wire
from inplace.common.wire.mode import Mode
from inplace.common.wire.worker_failure import WorkerFailure, failure_text
from inplace.simulator.apiserver.store import Event
from inplace.simulator.campaign import judge as rules
from inplace.simulator.campaign.catalogue import CATALOGUE
from inplace.simulator.campaign.fault import Fault
from inplace.simulator.campaign.hangs import L7
from inplace.simulator.campaign.judge import Judge, ViolationError
from inplace.simulator.campaign.liveness import L1, L2, L3, S8
from inplace.simulator.campaign.network import Ending
from inplace.simulator.campaign.process import Process, campaign_runner
from inplace.simulator.campaign.run import ENDLESS, HOT, VIRTUAL_S_MAX, Outcome, ScheduledFault, run_scenario
from inplace.simulator.campaign.scenario import JOBSET, NAMESPACE, Scenario
from inplace.simulator.campaign.soak import shrink
from inplace.simulator.campaign.trace import Trace
from inplace.simulator.campaign.world import World
from inplace.simulator.cluster.pod_spec import Probe
from inplace.simulator.cluster.prober import Prober
from tests.planted import mistake as mistakes
from tests.planted.mistake import instead_of
from tests.simulator.campaign.properties import properties
from tests.simulator.campaign.test_manners import MANNERS

UID = "jobset-uid"
GROUP = Scenario(pods_per_job=2)


def jobset(synced: int, deprecated: int, **spec: Any) -> dict[str, Any]:
    """Return the group's JobSet with a status."""
    found = GROUP.manifest()
    found["metadata"]["uid"] = UID
    found["spec"] |= spec
    return found | {"status": wire.status_of_epochs(synced, deprecated)}


def pod(index: int, epoch: int | str | None = None) -> dict[str, Any]:
    """Return a Pod of the group."""
    annotations = {wire.JOBSET_UID: UID, wire.JOB_COMPLETION_INDEX: str(index)}
    if epoch is not None:
        annotations[wire.EPOCH] = str(epoch)
    owner = {"kind": "Job", "name": "train-workers-0", "uid": "job-uid", "controller": True}
    meta = {"name": f"pod-{index}", "uid": f"pod-uid-{index}", "annotations": annotations, "ownerReferences": [owner]}
    return {"metadata": meta, "status": {"phase": "Running"}}


def job() -> dict[str, Any]:
    """Return the group's Job."""
    owner = {"kind": wire.KIND, "name": "train", "uid": UID, "controller": True}
    return {"metadata": {"name": "train-workers-0", "uid": "job-uid", "ownerReferences": [owner]}}


class Bench:
    """A judge, and methods that act as the programs do."""

    def __init__(self) -> None:
        self.judge = Judge(Trace())
        self.revision = 0

    def write(self, plural: str, obj: dict[str, Any], *, by: str = "user", event_type: str = "MODIFIED") -> None:
        """Show the judge a write."""
        self.revision += 1
        key = ("default", obj["metadata"]["name"])
        event = Event(self.revision, event_type, key, obj, None)  # type: ignore[arg-type]  # one of the three
        process = Process(by)

        async def program() -> None:
            self.judge.observe(plural, event)

        process.start(program())

    def announce(self, epoch: int, *indexes: int) -> None:
        """Let agents announce an epoch."""
        for index in indexes:
            self.write("pods", pod(index, epoch), by=f"agent/pod-{index}#1")

    def tell(self, epoch: int, index: int, announced: str = "") -> None:
        """Let an agent tell of a hang, on a Pod that shows this announcement."""
        told = pod(index, announced or epoch)
        told["metadata"]["annotations"][wire.WORKER_FAILED] = failure_text(WorkerFailure(epoch, None, 0.0, 4, 7))
        self.write("pods", told, by=f"agent/pod-{index}#1")

    def sync(self, synced: int, deprecated: int, **spec: Any) -> None:
        """Let the controller write S and D."""
        self.write("jobsets", jobset(synced, deprecated, **spec), by="controller-0#1")

    def stop(self) -> None:
        """Let both workers end."""
        for index in range(2):
            self.judge.worker_stopped(pod(index))

    async def start(self, index: int, epoch: int | None = None) -> None:
        """Let a worker start."""
        await asyncio.sleep(0.001)
        self.judge.worker_started(pod(index), epoch)


async def good(bench: Bench) -> None:
    """Start a group correctly."""
    bench.sync(0, 0)
    bench.announce(1, 0, 1)
    bench.sync(1, 0)
    await bench.start(0)
    await bench.start(1)


async def restart(bench: Bench, epoch: int) -> None:
    """End the workers of the group, and start them in this epoch; the one before is deprecated already."""
    bench.stop()
    bench.announce(epoch, 0, 1)
    bench.sync(epoch, epoch - 1)
    await bench.start(0)
    await bench.start(1)


async def two_epochs(bench: Bench) -> None:
    """Let one worker of epoch 1 run on beside epoch 2."""
    await good(bench)
    bench.judge.note_cause()
    bench.judge.worker_stopped(pod(0))
    bench.announce(2, 0, 1)
    bench.sync(2, 1)
    await bench.start(0)


async def hang_of_a_healthy_worker(bench: Bench) -> None:
    """Let an agent tell of a hang in an epoch after the one in which a worker hung."""
    await good(bench)
    bench.judge.worker_hung(pod(1))
    bench.tell(1, 0)
    bench.announce(2, 0, 1)
    bench.tell(2, 0)


async def hang_of_another_worker(bench: Bench) -> None:
    """Let an agent tell of a hang while a worker ends whose agent is another one."""
    await good(bench)
    bench.judge.worker_dying(pod(1))
    bench.tell(1, 0)


async def too_early(bench: Bench, until: str = "2023-11-14T22:13:28Z") -> None:
    """Let epoch 2 begin 8 s before its wait after failures in vain is over; virtual time begins at 22:13:20."""
    await good(bench)
    bench.judge.note_cause()
    bench.stop()
    bench.announce(2, 0, 1)
    written = jobset(2, 1)
    written["status"][wire.CRASH_LOOP] = {"failures": 2, "epoch": 2, "until": until}
    bench.write("jobsets", written, by="controller-0#1")


async def in_time(bench: Bench) -> None:
    """Let epoch 2 begin when its wait is over."""
    await too_early(bench, "2023-11-14T22:13:20Z")


async def with_a_pod_that_leaves(bench: Bench, *, has_ended: bool = False) -> None:
    """Let epoch 2 begin with a Pod that was to be replaced before."""
    await good(bench)
    bench.judge.note_cause()
    bench.stop()
    bench.announce(2, 0, 1)
    if has_ended:
        bench.write("pods", pod(0, 2) | {"status": {"phase": "Failed"}})
    written = jobset(2, 1)
    written["status"][wire.ESCALATION_USES] = [
        {"escalationStep": "LeaveNode", "epoch": 2, "pod": "pod-0", "podUid": "pod-uid-0"}
    ]
    bench.write("jobsets", written, by="controller-0#1")


async def without_a_pod_that_left(bench: Bench) -> None:
    """Let epoch 2 begin when that Pod has ended."""
    await with_a_pod_that_leaves(bench, has_ended=True)


async def twice(bench: Bench) -> None:
    """Let a worker start again in its epoch."""
    await good(bench)
    bench.judge.worker_stopped(pod(0))
    await bench.start(0)


async def waiting(bench: Bench) -> None:
    """Let both Pods of a new group wait at the barrier."""
    bench.sync(0, 0)
    bench.announce(1, 0, 1)
    await asyncio.sleep(0.001)


async def deleted(bench: Bench, *, by_force: bool = False) -> None:
    """Let somebody delete a Pod."""
    ending = pod(0, 1)
    if not by_force:
        ending["metadata"]["deletionTimestamp"] = "now"
    bench.write("pods", ending, event_type="DELETED" if by_force else "MODIFIED")
    await asyncio.sleep(0.001)


async def started_twice(bench: Bench) -> None:
    """Let S be stored; a Pod that waited and its replacement start."""
    bench.sync(1, 0)
    await bench.start(0)
    replacement = pod(0, 1)
    replacement["metadata"]["uid"] = "replacement"
    bench.judge.worker_started(replacement, 1)


async def replaced_by_force(bench: Bench) -> None:
    """Delete a Pod by force while it waits: it and its replacement start, and the controller saw it go."""
    bench.judge.note_pods_listed()
    await waiting(bench)
    await deleted(bench, by_force=True)
    await started_twice(bench)


async def replaced_by_force_unseen(bench: Bench) -> None:
    """Delete a waiting Pod by force, then let a new leader list the Pods: it cannot know of the deleted one."""
    await waiting(bench)
    await deleted(bench, by_force=True)
    bench.judge.note_pods_listed()
    await started_twice(bench)


async def replaced_before_s_is_decided(bench: Bench) -> None:
    """Delete a Pod that waits, and send S then: the controller's watch had said so."""
    await waiting(bench)
    await deleted(bench)
    bench.judge.note_synced_sent("train", 1, bench.revision)
    await started_twice(bench)


async def replaced_before_the_watch_says_so(bench: Bench) -> None:
    """Delete a Pod that waits, and send S before the controller's watch brings that: it could not know."""
    await waiting(bench)
    heard = bench.revision
    await deleted(bench)
    bench.judge.note_synced_sent("train", 1, heard)
    await started_twice(bench)


async def replaced_while_s_is_sent(bench: Bench) -> None:
    """Delete a Pod that waits while the write of S is under way: no controller could know."""
    await waiting(bench)
    bench.judge.note_synced_sent("train", 1, bench.revision)
    await deleted(bench)
    await started_twice(bench)


async def replaced_after_s_is_stored(bench: Bench) -> None:
    """Delete a Pod after S was stored: its replacement has no business in that epoch."""
    await waiting(bench)
    bench.judge.note_synced_sent("train", 1, bench.revision)
    bench.sync(1, 0)
    await asyncio.sleep(0.001)
    await deleted(bench)
    await started_twice(bench)


async def outlived_by_its_worker(bench: Bench) -> None:
    """Delete a Pod by force whose worker runs on: the others restart, and no program can know when it ends."""
    await good(bench)
    bench.write("pods", pod(0, 1), event_type="DELETED")
    bench.judge.worker_stopped(pod(1))
    replacement = pod(0, 2)
    replacement["metadata"]["uid"] = "replacement"
    bench.write("pods", replacement, by="agent/pod-0#2")
    bench.announce(2, 1)
    bench.sync(2, 1)
    await bench.start(1)


async def skipped(bench: Bench) -> None:
    """Sync and deprecate an epoch in one write, before all slots announced it; the next one is not counted."""
    policy = GROUP.manifest()["spec"]["failurePolicy"] | {"maxRestarts": 0}
    bench.sync(0, 0, failurePolicy=policy)
    bench.announce(1, 0)
    bench.write("pods", pod(0, 1), event_type="DELETED")
    bench.sync(1, 1, failurePolicy=policy)
    bench.announce(2, 0, 1)
    bench.sync(2, 1, failurePolicy=policy)
    await bench.start(0)
    await bench.start(1)


async def moved_by_two(bench: Bench) -> None:
    """Edit two Pods' epochs by hand, so that S jumps: the group restarts once, for these two causes."""
    await good(bench)
    bench.judge.note_cause(2)
    bench.announce(50, 0)
    bench.announce(31, 1)
    bench.sync(31, 31)
    await restart(bench, 32)


async def edited_alone(bench: Bench) -> None:
    """Edit the epoch of a group's only Pod by hand: that Pod alone decides."""
    one = GROUP.manifest()["spec"]["replicatedJobs"]
    one[0]["template"]["spec"] |= {"parallelism": 1, "completions": 1}
    bench.sync(0, 0, replicatedJobs=one)
    bench.announce(1, 0)
    bench.sync(1, 0, replicatedJobs=one)
    await bench.start(0)
    bench.judge.note_cause(2)
    bench.write("pods", pod(0, 37))
    bench.sync(37, 0, replicatedJobs=one)


async def edited_beside_another(bench: Bench) -> None:
    """Edit the epoch of one Pod of two by hand."""
    await good(bench)
    bench.judge.note_cause(2)
    bench.write("pods", pod(0, 37))
    bench.sync(37, 0)


async def forged_for_one_that_died(bench: Bench) -> None:
    """Write the next epoch on a Pod by hand; the agent of the other one, whose worker died, announces it too."""
    await good(bench)
    bench.judge.note_cause(2)
    bench.stop()
    bench.write("pods", pod(0, 2))
    bench.announce(2, 1)
    bench.sync(2, 1)


async def forged_and_then_announced(bench: Bench) -> None:
    """Write the next epoch on a Pod by hand; its own agent announces the same one."""
    await good(bench)
    bench.judge.note_cause(2)
    bench.write("pods", pod(0, 2))
    bench.sync(1, 1)
    await restart(bench, 2)


async def edited_before_a_hang_is_told(bench: Bench) -> None:
    """Spoil a Pod's epoch by hand; then its agent tells of a hang, and leaves the epoch as it is."""
    await good(bench)
    bench.judge.note_cause(2)
    bench.write("pods", pod(0, "many"))
    bench.judge.worker_hung(pod(0))
    bench.tell(1, 0, announced="many")


async def silent_because_it_ended(bench: Bench) -> None:
    """Let an agent tell of a hang after its worker's end, of which its guard tells it later."""
    await good(bench)
    bench.judge.note_cause()
    bench.judge.worker_dying(pod(0))
    bench.tell(1, 0)
    bench.judge.worker_stopped(pod(0))


async def early(bench: Bench) -> None:
    """Let a worker start BEFORE its epoch is synced."""
    bench.announce(1, 0, 1)
    await bench.start(0, 1)


async def synced_alone(bench: Bench) -> None:
    """Sync before all slots announced."""
    bench.announce(1, 0)
    bench.sync(1, 0)


async def back(bench: Bench) -> None:
    """Let S decrease."""
    await good(bench)
    bench.sync(0, 0)


async def recreated(bench: Bench) -> None:
    """Delete a Job without an ended Pod."""
    await good(bench)
    bench.write("jobs", job())
    bench.write("jobs", job(), by="controller-0#1", event_type="DELETED")


async def recreated_after_success(bench: Bench) -> None:
    """Delete a Job with a Pod that completed and was evicted afterwards."""
    await good(bench)
    bench.write("jobs", job() | {"status": {"succeeded": 1}})
    bench.write("jobs", job(), by="controller-0#1", event_type="DELETED")


async def once_too_often(bench: Bench) -> None:
    """Restart with no restart left."""
    policy = GROUP.manifest()["spec"]["failurePolicy"] | {"maxRestarts": 0}
    bench.sync(0, 0, failurePolicy=policy)
    bench.announce(1, 0, 1)
    bench.sync(1, 0, failurePolicy=policy)
    bench.judge.note_cause()
    bench.announce(2, 0, 1)
    bench.sync(2, 1, failurePolicy=policy)


async def for_nothing(bench: Bench) -> None:
    """Restart without a cause."""
    await good(bench)
    bench.announce(2, 0, 1)
    bench.sync(2, 1)


def judged(story: Callable[[Bench], Any]) -> ViolationError | None:
    """Return the judge's violation."""

    async def main() -> ViolationError | None:
        bench = Bench()
        await story(bench)
        await asyncio.sleep(0.001)
        return bench.judge.violation

    with campaign_runner() as runner:
        return runner.run(main())


BROKEN = [
    (two_epochs, rules.S1),
    (twice, rules.S2),
    (replaced_by_force, rules.S2),
    (replaced_before_s_is_decided, rules.S2),
    (replaced_after_s_is_stored, rules.S2),
    (early, rules.S3),
    (synced_alone, rules.S3),
    (edited_beside_another, rules.S3),
    (back, rules.S4),
    (recreated, rules.S5),
    (once_too_often, rules.S6),
    (for_nothing, rules.S7),
    (hang_of_a_healthy_worker, rules.S10),
    (hang_of_another_worker, rules.S10),
    (too_early, rules.S11),
    (with_a_pod_that_leaves, rules.S12),
]


@pytest.mark.parametrize(("story", "rule"), BROKEN)
def test_a_broken_property_is_found(story: Callable[[Bench], Any], rule: str) -> None:
    """Each story breaks one property, and the judge names it."""
    violation = judged(story)
    assert violation is not None
    assert violation.rule == rule


@pytest.mark.parametrize(
    "story",
    [
        good,
        recreated_after_success,
        replaced_by_force_unseen,
        replaced_while_s_is_sent,
        replaced_before_the_watch_says_so,
        outlived_by_its_worker,
        skipped,
        moved_by_two,
        edited_alone,
        forged_for_one_that_died,
        forged_and_then_announced,
        edited_before_a_hang_is_told,
        silent_because_it_ended,
        in_time,
        without_a_pod_that_left,
    ],
)
def test_what_is_well_breaks_nothing(story: Callable[[Bench], Any]) -> None:
    """The judge reports nothing for a correct start and for a Job that is recreated for a reason."""
    assert judged(story) is None


async def _passes_unasked(original: Any, self: Prober, probe: Probe) -> bool:
    return True


async def _forbid_for_ever(world: World, name: str, kind: str) -> None:
    world.network.calm = lambda: None  # type: ignore[method-assign]
    await CATALOGUE["rights-missing"].strike(world, Random(0), name)
    for disturbance in world.network.disturbances:
        disturbance.until_s, disturbance.clients = 1e9, lambda client: client.startswith(kind)


async def _cut_off_for_ever(world: World, rng: Random, name: str) -> None:
    await _forbid_for_ever(world, name, "agent/")


async def _break_a_watch_of_the_cheap_restart(world: World, rng: Random, name: str) -> None:
    """Break the first watch that an agent opens once all faults have stopped; this group is together then."""
    while not world.is_calm:
        await world.clock.sleep(0.01)
    open_before = list(world.network.streams)
    while not world.network.end_streams(
        Ending.CLEAN, lambda stream: stream.client.startswith("agent/") and stream not in open_before
    ):
        await world.clock.sleep(0.01)


async def _stop_the_controller_at_the_end(world: World, rng: Random, name: str) -> None:
    while not world.machine.completes:
        await world.clock.sleep(0.1)
    await _forbid_for_ever(world, name, "controller")


async def _fail_the_jobset(world: World, rng: Random, name: str) -> None:
    """Write the end of a JobSet that has restarts left, as a controller that miscounts would."""
    status = {"status": {"terminalState": "Failed"}}
    await world.client("user").patch(JOBSETS, NAMESPACE, JOBSET, status, subresource="status")


async def _cling(world: World, rng: Random, name: str) -> None:
    """Run on after the cancellation."""
    while True:
        try:
            await world.clock.sleep(10.0)
        except asyncio.CancelledError:
            if world.now_s >= VIRTUAL_S_MAX:
                raise


async def _spin(world: World, rng: Random, name: str) -> None:
    """Work for ever without waiting."""
    while True:
        for _ in range(10_000):
            world.trace.add("spin", "")
        await world.clock.sleep(0.01)


async def _switch_the_watchdog_off(world: World, rng: Random, name: str) -> None:
    off = {"metadata": {"annotations": {wire.STALL: None}}}
    await world.client("user").patch(JOBSETS, NAMESPACE, JOBSET, off)


async def _raise_the_budget_too_late(world: World, rng: Random, name: str) -> None:
    await CATALOGUE["worker-exit"].strike(world, rng, name)
    while not (world.jobset.get("status") or {}).get("terminalState"):
        await world.clock.sleep(0.1)
    await world.client("user").patch(JOBSETS, NAMESPACE, JOBSET, {"spec": {"failurePolicy": {"maxRestarts": 5}}})


def planted(strike: Any, at_s: float = 0.5, scenario: Scenario = GROUP) -> Outcome:
    """Run a group with a fault that no program can repair."""
    planted_fault = replace(CATALOGUE["term-ignored"], strike=strike)
    harmless: Fault = CATALOGUE["watch-closed"]
    strikes = (
        ScheduledFault(0, at_s, planted_fault),
        ScheduledFault(1, 1.0, harmless),
        ScheduledFault(2, 2.0, harmless),
    )
    return run_scenario(1, scenario, strikes, until_s=5.0)


@pytest.mark.parametrize("mode", [Mode.PROBE, Mode.CONTAINERS, Mode.PROCESS])
def test_a_kubelet_that_passes_a_startup_probe_unasked_is_found_beside_no_guard(mode: Mode) -> None:
    """With kubernetes #141155 the probe alone lets a worker start too early, and a guard still holds it back."""
    with mistakes.planted(instead_of(Prober._succeeds, _passes_unasked)):
        violation = planted(CATALOGUE["worker-exit"].strike, scenario=replace(GROUP, mode=mode)).violation
    assert (violation is None) is mode.is_guarded
    assert violation is None or violation.rule in (rules.S1, rules.S2, rules.S3)


def test_a_group_that_does_not_come_together_is_found_and_says_who_waits() -> None:
    """A fault that does not stop breaks L1, and the message names Pods, status and the tasks that wait."""
    assert "tasks wait at" in str(planted(_cut_off_for_ever).violation)


BAD_ENDS = [
    (_cut_off_for_ever, L1),
    (_break_a_watch_of_the_cheap_restart, L2),
    (_stop_the_controller_at_the_end, L3),
    (_fail_the_jobset, S8),
    (_cling, ENDLESS),
    (_spin, HOT),
]


def test_a_hang_that_nobody_ends_is_found() -> None:
    """L7: of a worker whose agent does not watch it."""
    watched = replace(GROUP, mode=Mode.SUPERVISOR, limits=StallSettings(2.0))
    outcome = planted(_switch_the_watchdog_off, scenario=watched)
    assert outcome.violation is not None
    assert outcome.violation.rule == L7
    assert planted(CATALOGUE["watch-closed"].strike, scenario=watched).violation is None


@pytest.mark.parametrize(("strike", "rule"), BAD_ENDS)
def test_an_end_that_is_not_good_is_found(strike: Any, rule: str) -> None:
    """L1 to L4 and S8 are found: no sync, a costly restart, a missing or wrong end, a program that does not end."""
    outcome = planted(strike)
    assert outcome.violation is not None
    assert outcome.violation.rule == rule


def test_a_budget_that_is_raised_after_the_end_explains_nothing() -> None:
    """A JobSet that failed with used-up restarts is no violation, also when maxRestarts is raised later."""
    outcome = planted(_raise_the_budget_too_late, 3.0, replace(GROUP, max_restarts=0))
    assert outcome.jobset["status"]["terminalState"] == "Failed"
    assert outcome.violation is None


def test_a_failure_shrinks_to_the_faults_that_it_needs() -> None:
    """Of a schedule of three faults only the needed one is left."""

    def run(seed: int, only: list[int]) -> Outcome:
        outcome = planted(_fail_the_jobset)
        return outcome if 0 in only else replace(outcome, seed=seed, violation=None)

    kept, least = shrink(planted(_fail_the_jobset), run)
    assert kept == [0]
    assert least.violation is not None


def test_every_property_has_a_story_that_breaks_it() -> None:
    """Every property has a story that breaks it, here, in test_manners.py or (M) in test_spares.py."""
    manners = {rule for _, rule in MANNERS.values() if rule is not None}
    assert {rule for _, rule in (*BROKEN, *BAD_ENDS)} | manners | {L7} == {
        rule for rule in properties() if rule[0] != "M"
    }
