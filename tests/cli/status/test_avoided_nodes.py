"""`inplace explain` names the nodes that new Pods avoid: as many as the controller avoids, until when, and why."""

from __future__ import annotations

from inplace.cli.group.state import group_state
from inplace.cli.status.explain import explanation_data
from inplace.cli.status.explanation import Explanation
from inplace.common.jobset.causes import unix_time
from inplace.common.kube.resources import KubeObject
from inplace.common.wire import names as wire
from tests.cli.facts import explanation_of, jobset, pod, text_of

NOW_S = unix_time("2026-01-01T02:20:00Z") or 0.0


def explained(nodes: int, policy: str = "failures=2,percent=50", in_use: int = 10) -> Explanation:
    """Explain a group that trains on `in_use` nodes, `nodes` of which are bad; another one was bad yesterday."""
    old: KubeObject = {"node": "old", "avoidedSince": "2025-12-31T02:10:00Z", "why": "exit code 1"}
    entries = [
        {"node": f"n{index}", "avoidedSince": f"2026-01-01T02:{10 + index}:00Z", "why": f"GPU {index}"}
        for index in range(nodes)
    ]
    raw = jobset(in_use, status=wire.status_of_epochs(1, 0) | {wire.NODE_FAILURES: [old, *entries]})
    raw["metadata"]["annotations"] = {wire.NODES: policy}
    pods = [pod(index, 1, spec={"nodeName": f"node-{index}"}) for index in range(in_use)]
    return explanation_of(group_state(raw, pods), pods, now_s=NOW_S)


def avoided_lines(explanation: Explanation) -> list[str]:
    """Return the lines about nodes."""
    return [line for line in text_of(explanation).splitlines() if "avoid" in line or "-o json" in line]


def test_each_avoided_node_has_a_line() -> None:
    """The newest first, with the end of its time and its failure; what is forgotten has none."""
    found = explained(2)
    assert avoided_lines(found) == [
        "new Pods avoid node n1 until 2026-01-01 03:11 UTC (0 failures): GPU 1",
        "new Pods avoid node n0 until 2026-01-01 03:10 UTC (0 failures): GPU 0",
    ]
    first = {"node": "n0", "failures": 0, "until": (unix_time("2026-01-01T03:10:00Z") or 0.0), "why": "GPU 0"}
    assert explanation_data(found)["avoidedNodes"][0] == first


def test_many_nodes_are_counted() -> None:
    """Ten have a line."""
    assert avoided_lines(explained(12, in_use=30))[10:] == ["and 2 nodes more: inplace explain train -o json"]


def test_no_more_than_the_controller_avoids() -> None:
    """Of five bad nodes one is avoided where 10 % of ten are the limit; without a policy none is."""
    assert [one.node for one in explained(5, "failures=2,percent=10").avoided] == ["n4"]
    assert avoided_lines(explained(5, "never")) == []
