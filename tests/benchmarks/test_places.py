"""The report of lost places; the run itself needs nodes."""

from __future__ import annotations

from benchmarks.places import SCENES, WHAT, WORDS, since, summary, table

MEASURED = {
    "drained": [{"created": each, "all_new": each + 1.0} for each in (10.0, 9.0, 11.004)],
    "plain_job": [{"created": 79.7}],
}


def test_moments_count_from_their_beginning() -> None:
    """In seconds of one clock."""
    assert since(100.0, {"created": 110.5, "all_new": 111.0}) == {"created": 10.5, "all_new": 11.0}


def test_the_report_has_medians_rounds_and_the_load() -> None:
    """A scene has only what was measured in it, in the order of time."""
    report = summary(MEASURED, 1.234)
    assert report["median_s"] == {"drained": {"created": 10.0, "all_new": 11.0}, "plain_job": {"created": 79.7}}
    assert report["rounds_s"]["drained"][2] == {"created": 11.0, "all_new": 12.0}
    assert report["load_before"] == 1.23
    assert list(report["what"]) == list(MEASURED)


def test_the_table_has_a_line_for_each_moment() -> None:
    """With words and not with names."""
    lines = table(summary(MEASURED, 0.0)).splitlines()
    assert lines[1] == WHAT["drained"]
    assert lines[2].split() == ["last", "replacement", "created", "10.0"]
    assert lines[-1].split()[-1] == "79.7"
    assert len(lines) == 1 + 3 + 2


def test_every_scene_is_explained() -> None:
    """And says from when its seconds count."""
    assert set(SCENES) == set(WHAT)
    assert all("from " in words for words in WHAT.values())
    assert set(WORDS) == {"created", "all_new", "died"}
