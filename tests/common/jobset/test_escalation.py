"""The escalation: what the annotation may say, and which step has room when."""

from __future__ import annotations

from datetime import UTC, datetime

from hypothesis import given
from hypothesis import strategies as st

from inplace.common.jobset.escalation import (
    FAIL,
    EscalationStep,
    Use,
    count_uses,
    escalation_of,
    fitting,
    kept,
    uses_of,
)
from inplace.common.wire import names as wire

ESCALATION = (EscalationStep("InPlace", 2, 100), EscalationStep("RecreateJobs", 1, 1000))


def time_of(at_s: float) -> str:
    """Return a moment as the status has it."""
    return datetime.fromtimestamp(at_s, UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")


def use(at_s: float, step: str = "InPlace", epoch: int = 2) -> Use:
    """Return a use of a step."""
    return Use(step, time_of(at_s), epoch)


def test_the_annotation_names_steps_in_order() -> None:
    """One window holds for all; without one it is a day; no annotation is no escalation."""
    read = escalation_of({wire.ESCALATION: "ReplacePod=2,InPlace=3,window=21600"})
    assert read == (EscalationStep("ReplacePod", 2, 21600), EscalationStep("InPlace", 3, 21600))
    assert escalation_of({wire.ESCALATION: "RecreateJobs=1"}) == (EscalationStep("RecreateJobs", 1, 86400),)
    assert escalation_of({wire.ESCALATION: "InPlace=3/21600"}) == escalation_of({}) == ()


def test_the_first_step_with_room_fits() -> None:
    """A window is half open: what is exactly as old as it has left it."""
    assert fitting(ESCALATION, (), 1000.0) == ESCALATION[0]
    full = (use(901.0), use(950.0))
    assert fitting(ESCALATION, full, 1000.0) == ESCALATION[1]
    assert fitting(ESCALATION, full, 1001.0) == ESCALATION[0]
    assert fitting(ESCALATION, (*full, use(960.0, "RecreateJobs")), 1000.0) is None


def test_a_clock_that_jumps_back_forgets_nothing_and_keeps_nothing_for_ever() -> None:
    """Times in the future count as now; the next write sets them to now."""
    future = (use(4600.0), use(10_000_000.0))
    assert count_uses(ESCALATION[0], future, 1000.0) == 2
    written = kept(ESCALATION, future, 1000.0, time_of(1000.0))
    assert written == (use(1000.0), use(1000.0))
    assert count_uses(ESCALATION[0], written, 1100.0) == 0


def test_what_no_window_holds_is_dropped() -> None:
    """Old uses, steps that are gone from the annotation, and more than a step's bound."""
    uses = (use(10.0), use(990.0, "ReplacePod"), use(991.0), use(992.0), use(993.0), use(994.0, FAIL))
    assert kept(ESCALATION, uses, 1000.0, time_of(1000.0)) == (use(992.0), use(993.0))


def test_garbage_in_the_status_is_passed_over() -> None:
    """Another program's words break nothing; a time that nobody can read never ages."""
    assert uses_of({wire.ESCALATION_USES: "no list"}) == ()
    (found,) = uses_of({wire.ESCALATION_USES: [7, {"escalationStep": "InPlace", "startedAt": "soon", "epoch": "x"}]})
    assert found.epoch == 0
    assert count_uses(ESCALATION[0], (found,), 1e12) == 1


@given(st.lists(st.tuples(st.integers(0, 60), st.integers(0, 3)), max_size=30), st.integers(1, 3), st.integers(1, 40))
def test_no_window_ever_holds_more_than_its_step_allows(
    waits: list[tuple[int, int]], uses_max: int, window_s: int
) -> None:
    """For any failures, however spaced: compared with all uses ever, which the status forgets."""
    escalation = (EscalationStep("InPlace", uses_max, window_s), EscalationStep("RecreateJobs", 1, 2 * window_s))
    now = 1_700_000_000.0
    ever: list[tuple[str, float]] = []
    uses: tuple[Use, ...] = ()
    for wait_s, _ in waits:
        now += wait_s
        uses = kept(escalation, uses, now, time_of(now))
        step = fitting(escalation, uses, now)
        for each in escalation:
            in_window = sum(name == each.name and now - at_s < each.window_s for name, at_s in ever)
            assert in_window <= each.uses_max
            if step is not None and step.name == each.name:
                assert in_window < each.uses_max
            elif step is None or escalation.index(step) > escalation.index(each):
                assert in_window == each.uses_max
        if step is not None:
            ever.append((step.name, now))
            uses = (*uses, use(now, step.name))
        assert len(uses) <= uses_max + 1
