"""The report of every benchmark: medians, spread, ratios and bounds."""

from __future__ import annotations

import json
import sys

import pytest

from benchmarks.figures import Figures, flags


def measured(**options: object) -> Figures:
    """Return three rounds of two agents, of which the second round was disturbed."""
    figures = Figures("starts", compared=[("ours", "theirs")], **options)  # type: ignore[arg-type]
    for ours, theirs in ((10.0, 40.0), (30.0, 90.0), (11.0, 44.0)):
        figures.add("ours", {"ms": ours, "rss_mb": 24.0})
        figures.add("theirs", {"ms": theirs})
    return figures


def test_a_report_has_median_spread_and_the_ratio_of_neighbours() -> None:
    """A figure has its median, least and most; a ratio is the median of the ratios of samples taken side by side."""
    report = measured().report()
    assert report["rows"]["ours"]["ms"] == {"median": 11.0, "min": 10.0, "max": 30.0, "samples": 3}
    assert report["ratios"] == {"ours / theirs": {"ms": 0.25}}
    assert json.loads(json.dumps(report)) == report


def test_a_mean_is_compared_with_a_mean() -> None:
    """A figure that the kernel counts coarsely is a mean, in the row and in the ratio."""
    report = measured(means=("ms",)).report()
    assert report["rows"]["ours"]["ms"]["mean"] == 17.0
    assert report["ratios"] == {"ours / theirs": {"ms": round(51 / 174, 4)}}


def test_rows_that_were_not_measured_are_left_out() -> None:
    """A pair and a bound of a row that took no part say nothing."""
    figures = Figures("", compared=[("ours", "upstream")], most={("upstream", "ms"): 1.0})
    figures.add("ours", {"ms": 5.0})
    assert (figures.ratios(), figures.missed()) == ({}, [])


def test_every_missed_bound_is_named() -> None:
    """The bound of a median and that of a ratio are named with what was seen."""
    figures = measured(most={("ours", "ms"): 10.0, ("ours", "rss_mb"): 24.0, ("ours / theirs", "ms"): 0.2})
    assert figures.missed() == [
        "ours: expected ms of at most 10, saw 11",
        "ours / theirs: expected ms of at most 0.2, saw 0.25",
    ]
    assert [line for line in figures.text().splitlines() if line.startswith("MISSED")] == [
        f"MISSED  {words}" for words in figures.missed()
    ]


def test_a_figure_of_nothing_has_no_ratio_and_passes_no_bound() -> None:
    """Where the other row's figure is 0 there is no ratio, and its bound is missed."""
    figures = Figures("", compared=[("ours", "theirs")], most={("ours / theirs", "cpu_s"): 1.0})
    figures.add("ours", {"cpu_s": 1.0})
    figures.add("theirs", {"cpu_s": 0.0})
    assert figures.ratios() == {"ours / theirs": {"cpu_s": None}}
    assert figures.missed() == ["ours / theirs: expected cpu_s of at most 1, saw ?"]


def test_a_number_of_rounds_is_at_least_1(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """An option that is no whole number of at least 1 is refused with what is expected."""
    parser = flags("Measure.", rounds=3)
    assert parser.parse_args([]).rounds == 3
    monkeypatch.setattr(sys, "argv", ["figures", "--rounds", "0"])
    with pytest.raises(SystemExit):
        parser.parse_args()
    assert "expected a whole number of at least 1, saw '0'" in capsys.readouterr().err
