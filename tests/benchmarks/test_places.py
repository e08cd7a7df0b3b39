"""The report of lost places; the run itself needs nodes."""

from __future__ import annotations

from benchmarks.lost_places import since
from benchmarks.places import PAIRS, SCENES, WHAT, figures_of


def test_moments_count_from_their_beginning() -> None:
    """In seconds of one clock."""
    assert since(100.0, {"created": 110.5, "all_new": 111.0}) == {"created": 10.5, "all_new": 11.0}


def test_a_scene_is_compared_with_its_own_baseline() -> None:
    """A drain stands beside a plain Job's, and the report says what a scene is and how loaded the machine was."""
    figures = figures_of(["drained", "plain_job"], 1, 1.234)
    figures.add("drained", {"created_s": 10.0, "all_new_s": 11.0})
    figures.add("plain_job", {"created_s": 80.0})
    assert figures.ratios() == {"drained / plain_job": {"created_s": 0.125}}
    assert "load 1.23 before" in figures.about
    assert f"drained: {WHAT['drained']}" in figures.about


def test_every_scene_is_explained() -> None:
    """And says from when its seconds count."""
    assert set(SCENES) == set(WHAT)
    assert all("from " in words for words in WHAT.values())
    assert {scene for pair in PAIRS for scene in pair} <= set(SCENES)
