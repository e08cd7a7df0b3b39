"""The report of our controller beside upstream's; the run itself needs a kube-apiserver and upstream's controller."""

from __future__ import annotations

from benchmarks.controller_upstream import report_of
from benchmarks.figures import Figures


def measured(pods: int, **ours: float) -> Figures:
    """Return the report of one restart under each controller."""
    figures = report_of([pods], "")
    figures.add(f"{pods:,} Pods, ours", {"cpu_s": 0.3, "rss_mb": 60.0, "deprecate_ms": 10.0, "sync_ms": 20.0} | ours)
    upstream = {"cpu_s": 6.0, "rss_mb": 300.0, "deprecate_ms": 40.0, "sync_ms": 80.0}
    figures.add(f"{pods:,} Pods, upstream", upstream)
    return figures


def test_cpu_and_memory_are_judged_at_5000_pods() -> None:
    """Delays are judged at every size, CPU and memory at the largest alone."""
    slow = {"cpu_s": 0.6, "rss_mb": 120.0, "sync_ms": 82.0}
    assert measured(5_000).missed() == []
    assert [words.rpartition(": ")[2] for words in measured(5_000, **slow).missed()] == [
        "expected sync_ms of at most 1, saw 1.02",
        "expected cpu_s of at most 0.08, saw 0.1",
        "expected rss_mb of at most 0.3, saw 0.4",
    ]
    assert [words.rpartition(": ")[2] for words in measured(200, **slow).missed()] == [
        "expected sync_ms of at most 1, saw 1.02"
    ]
