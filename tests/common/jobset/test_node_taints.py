"""What stands on a tainted Node, what bounds taints, and when one ends."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from inplace.common.jobset.jobset import JobSet, parse_jobset
from inplace.common.jobset.node_taints import (
    NodeTaint,
    TaintLimits,
    is_wanted,
    read_limits,
    read_taint,
    tainting,
    untainting,
)
from inplace.common.kube.resources import KubeObject
from inplace.common.wire import names as wire
from tests.controller.manifests import jobset

LIMITS = TaintLimits(4, 600)
NOW = "2026-01-01T00:00:00Z"
TAINT = NodeTaint("default", "train", "u1", "2026-01-01T00:10:00.000Z")
OURS = {"key": wire.BAD_NODE, "effect": "NoSchedule"}
FAILED = {"type": "Failed", "status": "True", "reason": "x", "message": "", "lastTransitionTime": NOW}
THEIRS = {"key": "broken", "effect": "NoExecute"}


def node(*taints: KubeObject, **metadata: Any) -> KubeObject:
    """Return a Node."""
    return {"metadata": {"name": "n0", "resourceVersion": "7"} | metadata, "spec": {"taints": list(taints)}}


def merged(stored: Any, patch: Any) -> Any:
    """Return what a JSON merge patch makes of something. Source: RFC 7396."""
    if not isinstance(patch, dict):
        return patch
    result = dict(stored) if isinstance(stored, dict) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = merged(result.get(key), value)
    return result


def with_verdict(**changes: Any) -> JobSet:
    """Return a JobSet whose status calls n0 bad since a minute ago."""
    raw = jobset(annotations={wire.NODES: "1"})
    raw["metadata"] |= {"uid": "u1"} | changes.pop("metadata", {})
    raw["spec"] |= changes.pop("spec", {})
    record = {"node": "n0", "failedAt": ["2025-12-31T23:59:00Z"], "avoidedSince": "2025-12-31T23:59:00Z"}
    raw["status"] = {wire.NODE_FAILURES: [record]} | changes.pop("status", {})
    assert not changes
    return parse_jobset(raw)


def test_a_taint_is_read_as_it_was_written_and_goes_without_trace() -> None:
    """The taints, labels and annotations of others stay."""
    before = node(THEIRS, labels={"rack": "a"}, annotations={"note": "x"})
    assert read_taint(before) is None
    tainted = merged(before, tainting(before, TAINT))
    assert tainted["spec"]["taints"] == [THEIRS, OURS]
    assert read_taint(tainted) == TAINT
    again = merged(tainted, tainting(tainted, TAINT))
    assert again["spec"]["taints"] == [THEIRS, OURS], "a second taint replaces the first"
    assert merged(tainted, untainting(tainted)) == before
    assert untainting(tainted)["metadata"]["resourceVersion"] == "7"


@pytest.mark.parametrize(
    "stored",
    [
        node(OURS),
        node(labels={wire.BAD_NODE: ""}),
        node(annotations={wire.BAD_NODE: "soon"}),
        node(annotations={wire.BAD_NODE: "[1]"}),
        node(annotations={wire.BAD_NODE: '{"until": 7}'}),
    ],
)
def test_what_is_left_of_a_taint_is_one_that_is_over(stored: KubeObject) -> None:
    """So that it is removed, whoever spoiled it."""
    found = read_taint(stored)
    assert found == NodeTaint()
    assert not is_wanted(LIMITS, "n0", found, with_verdict(), NOW)


@pytest.mark.parametrize(
    "text",
    ["", "4", "0/600", "101/600", "4/59", "4/3601", "4/600/", "4/600/A", "4/600/a//b", "-1/600", "4/6e2", "x" * 99],
)
def test_limits_that_cannot_be_read_are_refused(text: str) -> None:
    """The message says what is expected and what was seen."""
    with pytest.raises(ValueError, match="expected NODES/SECONDS with 1 to 100 nodes and 60 to 3600 seconds"):
        read_limits(text)


def test_limits() -> None:
    """Their bounds are part of what can be set."""
    assert [read_limits(text) for text in ("0", "1/60", "100/3600", "4/600/team-a/b")] == [
        None,
        TaintLimits(1, 60),
        TaintLimits(100, 3600),
        TaintLimits(4, 600, frozenset({"team-a", "b"})),
    ]
    assert [TaintLimits(nodes, 600).nodes_of_a_namespace for nodes in (1, 2, 3, 4, 100)] == [1, 1, 1, 2, 50]


def test_a_clock_that_is_set_back_by_seconds_ends_nothing() -> None:
    """Nor does a time without its fraction: a taint that has just been written stays."""
    assert is_wanted(LIMITS, "n0", TAINT, with_verdict(), "2025-12-31T23:59:55Z")


@pytest.mark.parametrize(
    ("why", "limits", "taint", "found", "now"),
    [
        ("the option is off", None, TAINT, with_verdict, NOW),
        ("no such jobset", LIMITS, TAINT, lambda: None, NOW),
        ("a namesake", LIMITS, TAINT, lambda: with_verdict(metadata={"uid": "u2"}), NOW),
        ("being deleted", LIMITS, TAINT, lambda: with_verdict(metadata={"deletionTimestamp": NOW}), NOW),
        ("finished", LIMITS, TAINT, lambda: with_verdict(status={"conditions": [FAILED]}), NOW),
        ("no annotation", LIMITS, TAINT, lambda: with_verdict(metadata={"annotations": {}}), NOW),
        ("the verdict is taken back", LIMITS, TAINT, lambda: with_verdict(status={wire.NODE_FAILURES: []}), NOW),
        ("the time is over", LIMITS, TAINT, with_verdict, "2026-01-01T00:10:00Z"),
        ("a clock jumped back", LIMITS, TAINT, with_verdict, "2025-12-31T23:59:54Z"),
        ("a lower limit", TaintLimits(4, 594), TAINT, with_verdict, NOW),
        ("no end", LIMITS, NodeTaint("default", "train", "u1"), with_verdict, NOW),
    ],
)
def test_endings(
    why: str, limits: TaintLimits | None, taint: NodeTaint, found: Callable[[], JobSet | None], now: str
) -> None:
    """Each of them ends a taint alone; without any it stays."""
    assert is_wanted(LIMITS, "n0", TAINT, with_verdict(), NOW)
    assert is_wanted(LIMITS, "n0", TAINT, with_verdict(spec={"suspend": True}), NOW), "its queue chooses other hosts"
    assert not is_wanted(limits, "n0", taint, found(), now), why
