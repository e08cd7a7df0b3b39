"""The annotation for bad nodes, and what is remembered of a node: its bounds, its clocks, and when it is forgotten."""

from __future__ import annotations

from typing import Any

import pytest

from inplace.common.jobset.bad_nodes import (
    NODES_MAX,
    WHY_CHARS_MAX,
    BadNodes,
    NodeRecord,
    Records,
    affinity_avoiding,
    after_check,
    after_failure,
    avoided,
    bad_nodes_of,
    forgiven,
    records_of,
)
from inplace.common.jobset.causes import Failure
from inplace.common.jobset.settings import NODE_FAILURES_MAX
from inplace.common.wire import names as wire

POLICY = BadNodes(2, 3600, 10)


def at(hour: int, minute: int = 0, second: int = 0) -> str:
    """Return a time of one day."""
    return f"2026-01-01T{hour:02d}:{minute:02d}:{second:02d}Z"


def failed(records: Records, node: str, now: str, policy: BadNodes = POLICY) -> Records:
    """Return the records after a worker failed first on a node, as they are read back."""
    before = stored(records, now, policy)
    after = after_failure(before, policy, Failure(f"pod-{now}", node, exit_code=1), now)
    return stored(after, now, policy)


def stored(records: Records, now: str, policy: BadNodes = POLICY) -> Records:
    """Write the records, and read them."""
    return records_of({wire.NODE_FAILURES: [record.fields() for record in records]}, policy, now)


def check_failed(node: str, ended_at: str) -> Failure:
    """Return a failed check."""
    return Failure("p", node, "worker", 6, message="no GPU", finished_at=ended_at)


@pytest.mark.parametrize(
    ("text", "policy"),
    [
        ("2", BadNodes(2, 3600, 10)),
        ("failures=1,within=60,percent=100", BadNodes(1, 60, 100)),
        ("failures=9", None),
        ("marked=stay", None),
    ],
)
def test_the_annotation_is_read(text: str, policy: BadNodes | None) -> None:
    """Failures, seconds, and a part of the nodes in percent."""
    assert bad_nodes_of({wire.NODES: text}) == policy
    assert bad_nodes_of({}) is None


def test_a_node_is_bad_after_so_many_failures_within_the_window() -> None:
    """And it is so for as long as the window, from the last of them."""
    once = failed((), "n1", at(1))
    assert avoided(once, POLICY, 100) == ()
    assert avoided(failed(once, "n1", at(2, 0, 1)), POLICY, 100) == ()  # the first is forgotten
    twice = failed(once, "n1", at(2))
    assert avoided(twice, POLICY, 100) == ("n1",)
    assert avoided(stored(twice, at(3)), POLICY, 100) == ("n1",)
    assert stored(twice, at(3, 0, 1)) == ()


def test_after_a_clock_that_jumped_back_nothing_is_forgotten_early() -> None:
    """A time in the future counts as now."""
    twice = failed(failed((), "n1", at(5)), "n1", at(4))
    assert avoided(stored(twice, at(4)), POLICY, 100) == ("n1",)


@pytest.mark.parametrize(("in_use", "most"), [(0, 1), (1, 1), (19, 1), (20, 2), (5000, 10)])
def test_a_part_of_the_nodes_is_avoided_at_most(in_use: int, most: int) -> None:
    """However many are bad; always one, and of too many those that failed last."""
    records: Records = ()
    for number in range(10):
        records = failed(failed(records, f"n{number}", at(1)), f"n{number}", at(1))
    assert avoided(records, POLICY, in_use) == tuple(f"n{number}" for number in range(10 - most, 10))


def test_what_is_remembered_is_bounded() -> None:
    """In nodes, times and words; the oldest are forgotten."""
    policy = BadNodes(NODE_FAILURES_MAX, 3600)
    records: Records = ()
    for number in range(2 * NODES_MAX):
        for _ in range(2 * NODE_FAILURES_MAX):
            failure = Failure("p" * 253, f"n{number}".ljust(253, "x"), exit_code=1, message="m" * 10_000)
            records = after_failure(records, policy, failure, at(1))
    assert len(records) == NODES_MAX
    assert records[-1].node.startswith(f"n{2 * NODES_MAX - 1}")
    assert {len(record.failed_at) for record in records} == {NODE_FAILURES_MAX}
    assert max(len(record.why) for record in records) <= WHY_CHARS_MAX
    assert len(str([record.fields() for record in records])) < 40_000


def test_a_failed_check_is_enough_and_counted_once() -> None:
    """The Pod stays as it is for hours; the same end says nothing new, also after the verdict ran out."""
    failure = check_failed("n1", at(1))
    records = stored(after_check((), POLICY, failure, at(1, 0, 5)), at(1, 0, 5))
    assert avoided(records, POLICY, 100) == ("n1",)
    assert after_check(records, POLICY, failure, at(1, 30)) is records
    assert after_check(stored(records, at(2, 0, 6)), POLICY, failure, at(2, 0, 6)) == ()
    later = after_check(records, POLICY, check_failed("n1", at(1, 30)), at(1, 30, 5))
    assert later[0].avoided_since == at(1, 30, 5)


def test_a_verdict_that_was_taken_back_does_not_come_again() -> None:
    """Not from the same failed check; a new failure counts from one."""
    failure = check_failed("n1", at(1))
    records = failed(failed(after_check((), POLICY, failure, at(1)), "n1", at(1)), "n2", at(1))
    records = stored(forgiven(records, {"n1"}), at(1, 1))
    assert avoided(records, POLICY, 100) == ()
    assert after_check(records, POLICY, failure, at(1, 1)) is records
    assert [record.node for record in records if record.failed_at] == ["n2"]
    assert avoided(failed(records, "n1", at(1, 2)), POLICY, 100) == ()


@pytest.mark.parametrize("entry", [{}, {"node": "n1"}, {"node": "n1", "failedAt": ["soon"]}, {"failedAt": [at(1)]}])
def test_an_entry_that_says_nothing_is_dropped(entry: dict[str, Any]) -> None:
    """Somebody else wrote it."""
    assert records_of({wire.NODE_FAILURES: [entry]}, POLICY, at(1)) == ()


def test_the_affinity_that_a_pod_has_stays() -> None:
    """A preference is added; a field selector takes one name."""
    term = {"weight": 1, "preference": {"matchExpressions": []}}
    preferred = "preferredDuringSchedulingIgnoredDuringExecution"
    old = {"podAffinity": {"a": 1}, "nodeAffinity": {"requiredX": 2, preferred: [term]}}
    new = affinity_avoiding(old, ("n1", "n2"))
    assert new["podAffinity"] == {"a": 1}
    assert new["nodeAffinity"]["requiredX"] == 2
    mine = new["nodeAffinity"][preferred][1]
    assert new["nodeAffinity"][preferred][0] == term
    assert mine["weight"] == 100
    assert [field["values"] for field in mine["preference"]["matchFields"]] == [["n1"], ["n2"]]
    assert affinity_avoiding(None, ("n1",))["nodeAffinity"][preferred][0]["weight"] == 100


def test_an_empty_record_is_a_name() -> None:
    """Fields that say nothing are not written."""
    assert NodeRecord("n1").fields() == {"node": "n1"}
