"""The report of our controller beside upstream's; the run itself needs a kube-apiserver and upstream's controller."""

from __future__ import annotations

from benchmarks.controller_upstream import judge, row, table

OURS = {"cpu_s": 0.3, "rss_mb": 60.0, "deprecate_ms": 10.0, "sync_ms": 20.0}
UPSTREAM = {"cpu_s": 6.0, "rss_mb": 300.0, "deprecate_ms": 40.0, "sync_ms": 80.0}


def test_a_row_has_both_sides_and_their_ratios() -> None:
    """A row has the keys that scripts read, and a ratio is ours divided by upstream's."""
    assert row(5_000, OURS, UPSTREAM) == {
        "pods": 5_000,
        "ours": OURS,
        "upstream": UPSTREAM,
        "ratio": {"cpu_s": 0.05, "rss_mb": 0.2, "deprecate_ms": 0.25, "sync_ms": 0.25},
    }


def test_every_missed_bound_is_named() -> None:
    """CPU and memory are judged at 5,000 Pods, delays at every size; what is missed says by how much."""
    assert not [*judge([row(5_000, OURS, UPSTREAM)])]
    slow = OURS | {"cpu_s": 0.6, "rss_mb": 120.0, "sync_ms": 81.0}
    assert [*judge([row(5_000, slow, UPSTREAM)])] == [
        "sync_ms at 5000 pods: expected at most 1 of upstream's, saw 1.012",
        "cpu_s at 5000 pods: expected at most 0.08 of upstream's, saw 0.1",
        "rss_mb at 5000 pods: expected at most 0.3 of upstream's, saw 0.4",
    ]
    assert [*judge([row(200, slow, UPSTREAM)])] == ["sync_ms at 200 pods: expected at most 1 of upstream's, saw 1.012"]


def test_a_figure_of_nothing_has_no_ratio_and_passes_no_bound() -> None:
    """A controller too quick for the kernel's 10 ms has no ratio; the report says that a bound is missed."""
    found = row(5_000, OURS, UPSTREAM | {"cpu_s": 0.0})
    assert found["ratio"]["cpu_s"] is None
    assert [*judge([found])] == ["cpu_s at 5000 pods: expected at most 0.08 of upstream's, saw None"]


def test_the_table_names_the_version_and_what_is_missed() -> None:
    """The table says against which version it compares, and repeats what is missed."""
    text = table([row(200, OURS | {"deprecate_ms": 50.0}, UPSTREAM)], "v1.2.3")
    assert "upstream v1.2.3" in text
    assert "0.3 / 6 (0.05x)" in text
    assert "MISSED: deprecate_ms at 200 pods" in text
