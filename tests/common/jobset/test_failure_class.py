"""A failure has the class that its last words show, on every node alike."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inplace.common.jobset.causes import Failure, Trigger
from inplace.common.jobset.failure_class import FailureClass, class_of, class_words
from inplace.common.wire.last_line import BYTES_MAX
from tests.corpus.tails import Tail, tails

RIGHT_MIN = 0.9


@pytest.mark.parametrize("tail", tails("tails.txt"), ids=lambda tail: tail.text[-40:])
def test_known_words_have_their_class(tail: Tail) -> None:
    """Those that the rules were written for; a program's new words are added there first."""
    assert class_of(Trigger.WORKER_EXIT, tail.failure) is tail.truth


@pytest.mark.parametrize("name", ["held_out.txt", "held_out_2.txt"])
def test_words_of_public_reports_have_theirs_most_often(name: str) -> None:
    """Somebody else gathered them, and did not know the rules; which are wrong is known, and no reason for a rule."""
    found = tails(name)
    wrong = [one for one in found if class_of(Trigger.WORKER_EXIT, one.failure) is not one.truth]
    assert len(found) >= 150
    assert len(wrong) <= (1 - RIGHT_MIN) * len(found), "\n".join(one.text for one in wrong)


@pytest.mark.parametrize(
    ("trigger", "failure", "found"),
    [
        (Trigger.DISRUPTED, Failure("p", "n", reason="PreemptionByScheduler"), FailureClass.OUTSIDE),
        (Trigger.POD_LOST, Failure("p", "n", reason="NodeLost"), FailureClass.DEVICE),
        (Trigger.STALLED, Failure("p", "n", reason="Stalled"), FailureClass.COLLECTIVE),
        (Trigger.LOSS_NOT_FINITE, None, FailureClass.NUMERICS),
        (Trigger.WORKER_EXIT, None, FailureClass.UNKNOWN),
        (Trigger.MANUAL, None, FailureClass.UNKNOWN),
        (Trigger.WORKER_EXIT, Failure("p", "n", "w", 137, "OOMKilled", last_line="ValueError: x"), FailureClass.MEMORY),
    ],
)
def test_what_kubernetes_says_comes_first(trigger: Trigger, failure: Failure | None, found: FailureClass) -> None:
    """The worker's own words may be older than what ended it."""
    assert class_of(trigger, failure) is found


def test_only_a_workers_end_has_more_words() -> None:
    """Of a hang or an eviction the trigger says it already, and unknown is no news."""
    broken = Failure("p", "n", "w", 1, "Error", last_line="MemoryError: 7 GiB")
    assert class_words(Trigger.WORKER_EXIT, broken) == " (memory)"
    assert class_words(Trigger.DISRUPTED, broken) == ""
    assert class_words(Trigger.WORKER_EXIT, Failure("p", "n", "w", 1, "Error")) == ""


def test_a_script_fails_on_any_node() -> None:
    """So its failures blame none."""
    blamed = {one.value for one in FailureClass if one.may_be_of_the_node}
    assert blamed == {"outside", "memory", "device", "collective", "storage", "unknown"}


@given(st.text(max_size=BYTES_MAX), st.none() | st.integers(-64, 255), st.text(max_size=20))
def test_whatever_a_worker_wrote_has_one_class(line: str, code: int | None, reason: str) -> None:
    """Strangers write the line."""
    assert class_of(Trigger.WORKER_EXIT, Failure("p", "n", "w", code, reason, last_line=line)) in FailureClass
