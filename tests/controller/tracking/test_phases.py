"""The phases that Pods announce are counted once each, and decide nothing."""

from __future__ import annotations

import pytest

from inplace.common.jobset.kinds import Pod
from inplace.common.wire import names as wire
from inplace.controller.metrics import Metrics
from inplace.controller.tracking.phases import UNCOUNTED_MAX, PhaseReader
from tests.controller.manifests import jobset
from tests.controller.objects import lone_pod
from tests.controller.rig import Rig

pytestmark = pytest.mark.virtual_time

COUNT = "inplace_pod_restart_phase_duration_seconds_count"
SUM = "inplace_pod_restart_phase_duration_seconds_sum"
PROBLEMS = "inplace_unreadable_phases_total"


def pod(epoch: object = None, phases: str | None = None) -> Pod:
    """Return a Pod with these announcements."""
    named = {wire.EPOCH: None if epoch is None else str(epoch), wire.PHASES: phases}
    annotations = {name: value for name, value in named.items() if value is not None}
    return lone_pod(metadata={"annotations": annotations})


class World:
    """A reader and its counts."""

    def __init__(self, *steps: tuple[Pod | None, Pod | None]) -> None:
        self.metrics = Metrics()
        reader = PhaseReader(self.metrics)
        for old, new in steps:
            reader.pod_changed(old, new)
        self.uncounted = self.count("view")
        self.metrics.catch_up()

    def count(self, phase: str) -> float:
        """Return how many durations of a phase were observed."""
        return self.metrics.registry.get_sample_value(COUNT, {"phase": phase}) or 0.0

    @property
    def problems(self) -> float | None:
        """Return how many annotations could not be read."""
        return self.metrics.registry.get_sample_value(PROBLEMS)


def test_each_announcement_is_counted_once() -> None:
    """A higher epoch counts; the same event again, a status change and a deletion do not."""
    first, second = pod(1, "v1,view=40"), pod(2, "v1,view=60,barrier=2000")
    world = World((None, pod()), (pod(), first), (first, first), (first, second), (second, second), (second, None))
    assert (world.count("view"), world.count("barrier"), world.count("stop")) == (2, 1, 0)
    assert world.metrics.registry.get_sample_value(SUM, {"phase": "view"}) == pytest.approx(0.1)


def test_what_a_herd_tells_is_counted_when_somebody_looks() -> None:
    """Announced phases are counted at a scrape, or when too many wait, not at the event, for which workers wait."""
    told = (pod(), pod(1, "v1,view=40"))
    world = World(told)
    assert (world.uncounted, world.count("view")) == (0, 1)
    many = World(*[told] * UNCOUNTED_MAX)
    assert many.uncounted == UNCOUNTED_MAX
    scraped = Metrics()
    PhaseReader(scraped).pod_changed(*told)
    assert b'inplace_pod_restart_phase_duration_seconds_count{phase="view"} 1.0' in scraped.text()


def test_a_new_leader_counts_nothing_again() -> None:
    """A new leader does not count the phases of its initial lists: the old leader counted them."""
    assert World((None, pod(3, "v1,view=40"))).count("view") == 0


@pytest.mark.parametrize("text", ["", "v2,view=1", "v1,view=soon", "v1,Name=1", "x" * 100_000])
def test_garbage_is_counted_and_forgotten(text: str) -> None:
    """A garbage annotation is counted as unreadable, and the next Pod counts as usual."""
    world = World((pod(), pod(1, text)), (pod(), pod(1, "v1,view=1")))
    assert (world.problems, world.count("view")) == (1, 1)


@pytest.mark.parametrize("epoch", ["two", "0", None])
def test_phases_without_an_epoch_are_not_counted(epoch: str | None) -> None:
    """Phases without an announced epoch are not counted; a missing phases annotation is no problem."""
    world = World((pod(), pod(epoch, "v1,view=1")), (pod(), pod(1)))
    assert (world.problems, world.count("view")) == (0, 0)


async def test_the_controller_sums_up_what_its_pods_announce(rig: Rig) -> None:
    """Through API server and informer each Pod's phases are one observation, and garbage blocks nothing."""
    crew = await rig.started(jobset())
    for number, pod_name in enumerate(sorted(crew.pods.values())):
        text = "v1,kubelet=1200,view=50" if number else "garbage"
        await crew.annotate(pod_name, wire.epoch_annotations(2) | {wire.PHASES: text})
    await rig.settle()

    rig.controllers[0].metrics.catch_up()
    pods = rig.sample(COUNT, phase="kubelet")
    assert pods >= 1
    assert rig.sample(PROBLEMS) == 1
    assert rig.sample(SUM, phase="kubelet") == pytest.approx(1.2 * pods)


async def test_the_shortest_wait_at_a_barrier_is_how_long_it_took_to_lift(rig: Rig) -> None:
    """The shortest wait at a barrier is the time of sync and lift; it is reported at the next sync."""
    crew = await rig.started(jobset())
    for pod, barrier_ms in zip(crew.pods.values(), (4000, 300), strict=True):
        told = wire.epoch_annotations(2) | {wire.PHASES: f"v1,barrier={barrier_ms}"}
        await crew.annotate(pod, told)
    await rig.settle()
    name = "inplace_group_restart_phase_duration_seconds"
    assert rig.sample(f"{name}_sum", phase="lift") == pytest.approx(0.3)
    for pod in crew.pods.values():
        await crew.annotate(pod, wire.epoch_annotations(3) | {wire.PHASES: "v1,view=40"})
    await rig.settle()
    assert rig.sample(f"{name}_count", phase="lift") == 1
