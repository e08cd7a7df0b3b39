"""A failure that comes back is told from several that only follow each other."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inplace.common.jobset.crash_loop import CrashLoop
from inplace.common.jobset.failure_class import FailureClass
from inplace.common.jobset.in_vain import InVain, in_vain, slot_of
from inplace.common.jobset.restart_history import PastRestart

CODE, STORAGE, ECHO = (
    "KeyError: 7",
    "OSError: [Errno 28] No space left on device",
    "RuntimeError: Connection closed by peer",
)
LAUNCH, NOTHING = "ModuleNotFoundError: No module named 'x'", ""
CLASSES = {CODE: "code", STORAGE: "storage", ECHO: "collective", LAUNCH: "launch", NOTHING: "unknown"}


def past(epoch: int, line: str = CODE, slot: int = 0, step: int | None = None) -> PastRestart:
    """Return a restart because of a worker; each of its Pods has another name."""
    return PastRestart(
        epoch, trigger="worker_exit", pod=f"train-w-0-{slot}-{epoch:05}", exit_code=1, last_line=line, last_step=step
    )


def found(*history: PastRestart, failures: int = 9, times: int = 3) -> InVain | None:
    """Return what is said of a history without progress."""
    return in_vain(history, CrashLoop(failures=failures), "", times)


def test_one_class_from_one_slot_is_in_vain() -> None:
    """Its Pods may have been replaced meanwhile; the last one's words are the proof."""
    vain = found(past(2), past(3), past(4))
    assert vain is not None
    assert (vain.times, vain.verdict.found, vain.place) == (3, FailureClass.CODE, "from train-w-0-0")
    assert str(vain).startswith("restarts did not help: 3 failures in a row of class code from train-w-0-0 without")


def test_a_script_that_never_begins_has_one_place() -> None:
    """Each time another rank may be the first to tell."""
    vain = found(*(past(epoch, LAUNCH, slot=epoch) for epoch in (2, 3, 4)))
    assert vain is not None
    assert vain.place == "at the launch"


@pytest.mark.parametrize(
    "history",
    [
        (past(2), past(3)),
        (past(2), past(3, STORAGE), past(4)),
        (past(2), past(3, "ValueError: 7"), past(4)),
        (past(2), past(3, slot=1), past(4)),
        (past(2), past(4), past(5)),
        (past(2, NOTHING), past(3, NOTHING), past(4, NOTHING)),
        (past(2, ECHO), past(3, ECHO), past(4, ECHO)),
        (past(2), past(3), PastRestart(4, trigger="manual"), past(5)),
        (past(2), past(3), PastRestart(4, trigger="disrupted", pod="train-w-0-0-x"), past(5)),
    ],
    ids=[
        "too few",
        "another class",
        "another error",
        "another slot",
        "an epoch is missing",
        "no words",
        "echoes",
        "a person",
        "evicted",
    ],
)
def test_what_is_another_failure_is_not_in_vain(history: tuple[PastRestart, ...]) -> None:
    """An echo says nothing of what failed."""
    assert found(*history) is None


def test_progress_and_another_scope_begin_the_count_anew() -> None:
    """The crash loop has the failures since the last progress."""
    history = (past(2), past(3), past(4))
    assert found(*history, failures=2) is None
    assert in_vain(history, CrashLoop(failures=3), "other", 3) is None


story = st.lists(
    st.tuples(st.sampled_from(list(CLASSES)), st.integers(0, 1), st.none() | st.integers(0, 1)), min_size=1, max_size=6
)


@given(story, st.integers(2, 4))
def test_whatever_is_said_is_of_one_class_and_one_place(told: list[tuple[str, int, int | None]], times: int) -> None:
    """And everything that is, of an error that is known, is said: a second reading of the same story agrees."""
    history = [past(2 + number, *one) for number, one in enumerate(told)]
    last = told[-times:]
    classes, slots, steps = ({one[part] for one in last} for part in range(3))
    has_place = (
        (len(slots) == 1 and ECHO not in classes) or classes == {LAUNCH} or (len(steps) == 1 and None not in steps)
    )
    expected = len(last) == times and len(classes) == 1 and not classes & {NOTHING, ECHO} and has_place
    assert (found(*history, times=times) is not None) is expected


def test_a_slot_outlives_its_pods() -> None:
    """The Job controller gives each new Pod of a slot five letters."""
    assert slot_of("train-w-0-12-abcde") == slot_of("train-w-0-12-fghij") == "train-w-0-12"
    assert slot_of("p") == "p"
