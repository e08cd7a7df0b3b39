from __future__ import annotations

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


@given(now_s=st.floats(0, 1e6), phase_s=st.floats(0, 1e6), period_s=st.floats(0.01, 100))
def test_the_next_tick_is_within_one_period(now_s: float, phase_s: float, period_s: float) -> None:
    """Never in the past, never further than a period."""
    assert 0 <= until_tick_s(now_s, phase_s, period_s) <= period_s * (1 + 1e-6) + 1e-6
