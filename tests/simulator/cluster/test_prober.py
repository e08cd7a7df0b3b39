from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from inplace.common.kube.clock import LoopClock
from inplace.simulator.cluster import pod_lifecycle as life
from inplace.simulator.cluster import virtual_time
from inplace.simulator.cluster.pod_spec import ContainerSpec, Probe, Role
from inplace.simulator.cluster.prober import Prober, until_tick_s

PROBE = Probe("/ready", 8080, None, 0.0, 1.0, 1.0, 3, 1)


class Answers:
    """A container whose probes answer from a list, then with the last answer for ever."""

    def __init__(self, *answers: bool) -> None:
        self._answers = list(answers)
        self.times_s: list[float] = []
        self._clock = LoopClock()

    async def wait(self) -> int:
        """Not used here."""
        raise NotImplementedError

    async def stop(self, grace_s: float) -> None:
        """Not used here."""

    def signal(self, number: int) -> None:
        """Not used here."""

    def signal_child(self, number: int) -> None:
        """Not used here."""

    async def probe(self, probe: Probe) -> bool:
        """Give the next answer."""
        self.times_s.append(self._clock.monotonic_s())
        return self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]


def probe(answers: Answers, *, born_s: float) -> list[life.Event]:
    """Run the startup probe of a container against a list of answers."""
    events: list[life.Event] = []
    spec = ContainerSpec("agent", Role.SIDECAR, "Always", (), PROBE, None, None, {})

    async def main() -> None:
        await Prober(spec, 7, answers, clock=LoopClock(), born_s=born_s, report=events.append).run()

    virtual_time.run(main())
    return events


def test_a_probe_ticks_at_its_pods_phase() -> None:
    """Whole periods after the Pod's birth, not after the container's start."""
    answers = Answers(False, False, True)
    assert probe(answers, born_s=-0.25) == [life.StartupPassed("agent", 7)]
    assert answers.times_s == [0.75, 1.75, 2.75]


def test_failures_in_a_row_reach_the_threshold() -> None:
    """Three failures kill the container."""
    assert probe(Answers(False), born_s=0.0) == [life.ProbeFailed("agent", 7)]


SLOW = Probe("/ready", 8080, None, 0.0, 10.0, 1.0, 3, 1)


class Asked(Answers):
    """A container that answers no liveness probe, and notes when each kind of probe came."""

    def __init__(self, *, fails: int) -> None:
        super().__init__(True)
        self.asked: dict[float, list[float]] = {}
        self._fails = fails

    async def probe(self, probe: Probe) -> bool:
        """Answer the slow probe with failures, and the others first with so many."""
        self.asked.setdefault(probe.period_s, []).append(self._clock.monotonic_s())
        return len(self.asked[probe.period_s]) > self._fails


def watched(answers: Asked, *, seconds: float, **probes: Probe) -> list[life.Event]:
    """Run probes of a container that runs from now on, for some seconds."""
    events: list[life.Event] = []
    startup, readiness, liveness = (probes.get(one) for one in KINDS)
    spec = ContainerSpec("w", Role.REGULAR, "Never", (), startup, readiness, liveness, {})

    async def main() -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await Prober(spec, 7, answers, clock=LoopClock(), born_s=0.0, report=events.append).run()

    virtual_time.run(main())
    return events


KINDS = ("startup", "readiness", "liveness")


def test_each_probe_has_its_own_schedule() -> None:
    """A readiness probe each second does not ask for liveness more often than each ten, and a failure ends it alone."""
    answers = Asked(fails=1_000)
    events = watched(answers, seconds=45.0, readiness=PROBE, liveness=SLOW)
    assert answers.asked[10.0] == [10.0, 20.0, 30.0]
    assert len(answers.asked[1.0]) == 44
    assert events == [life.ProbeFailed("w", 7)]


def test_a_probe_waits_for_its_initial_delay() -> None:
    """Counted from the container's start, in whole seconds, for each probe."""
    for kind in KINDS:
        answers = Asked(fails=0)
        watched(answers, seconds=8.5, **{kind: replace(PROBE, initial_delay_s=5.0)})
        assert answers.asked[1.0][0] == 5.0, kind


def test_readiness_changes_after_its_thresholds() -> None:
    """Three failures in a row make a container unready, and so many successes ready."""
    answers = Asked(fails=2)
    events = watched(answers, seconds=8.5, readiness=replace(PROBE, success_threshold=2))
    assert events == [life.Readiness("w", 7, True)]
    assert answers.asked[1.0][3] == 4.0


@given(now_s=st.floats(0, 1e6), phase_s=st.floats(0, 1e6), period_s=st.floats(0.01, 100))
def test_the_next_tick_is_within_one_period(now_s: float, phase_s: float, period_s: float) -> None:
    """Never in the past, never further than a period."""
    assert 0 <= until_tick_s(now_s, phase_s, period_s) <= period_s * (1 + 1e-6) + 1e-6
