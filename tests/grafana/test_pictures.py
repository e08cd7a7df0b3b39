"""The pictures show Prometheus' answers, and an empty panel's reason."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from typing import Any

import pytest

from grafana.build import BOARDS
from grafana.drawing import draw
from grafana.panels import Board, Panel, Query, Row
from grafana.promql import concrete
from grafana.series import read, with_unit

START_S, END_S = 1000.0, 1060.0


def answer(*values: str, step_s: float = 10.0, **labels: str) -> dict[str, Any]:
    """Return a series as Prometheus answers."""
    return {"metric": labels, "values": [[START_S + i * step_s, value] for i, value in enumerate(values)]}


def board(panel: Panel) -> Board:
    """Return a board of one panel."""
    return Board("test", "Test", "One panel.", "1h", (), (Row("Row", (panel,)),))


def panel(kind: Any, *legends: str, **more: Any) -> Panel:
    """Return a panel with a query for each legend."""
    return Panel(
        kind, "Panel", "It is a test.", "s", "InplaceRestartSlow", tuple(Query("x", each) for each in legends), **more
    )


def parsed(picture: str) -> list[ET.Element]:
    """Return the elements of a picture."""
    return list(ET.fromstring(picture))  # noqa: S314 - our own text


def elements(drawn: Panel, *answers: list[Any]) -> list[ET.Element]:
    """Return the elements of the picture of one panel."""
    found = [read(query, each) for query, each in zip(drawn.queries, answers, strict=True)]
    return parsed(draw(board(drawn), {"Panel": found}, START_S, END_S))


def words(found: list[ET.Element]) -> list[str]:
    """Return every text of a picture."""
    return [each.text or "" for each in found if each.tag.endswith("text")]


@pytest.mark.parametrize("each", BOARDS, ids=lambda each: each.uid)
def test_every_board_can_be_drawn_empty(each: Board) -> None:
    """Each panel of an empty board is drawn with its title and the words for no data."""
    picture = draw(each, {drawn.title: [[] for _ in drawn.queries] for drawn in each.panels}, START_S, END_S)
    said = words(parsed(picture))
    assert {drawn.title for drawn in each.panels} <= set(said)
    assert sum(text.startswith(("no ", "not", "needs", "agents are")) for text in said) >= len(each.panels)


def test_a_line_ends_where_answers_end() -> None:
    """Two stretches with a gap between them are two lines, in the colour of that series."""
    drawn = panel("timeseries", "{{state}}", colours={"running": "#010203"})
    found = elements(drawn, [answer("1", "2", "NaN", "NaN", "3", "4", state="running")])
    lines = [each for each in found if each.get("stroke") == "#010203"]
    assert [len((each.get("points") or "").split()) for each in lines] == [2, 2]
    assert "running  4 s" in words(found)


def test_a_stack_adds_up() -> None:
    """The upper edge of the second series is the sum of both."""
    drawn = panel("timeseries", "{{phase}}", stacked=True)
    found = elements(drawn, [answer("1", "1", phase="a"), answer("3", "3", phase="b")])
    tops = [float((each.get("points") or "").split()[0].split(",")[1]) for each in found if each.get("stroke-width")]
    zero, _, _, first, second = tops
    assert (zero - second) == pytest.approx(4 * (zero - first), rel=0.05)


def test_the_limit_is_a_line_only_when_it_is_near() -> None:
    """The limit is drawn only near the data: a far limit would flatten the data."""
    drawn = panel("timeseries", "x", limit=10.0)
    assert any(each.get("stroke-dasharray") for each in elements(drawn, [answer("9", "9")]))
    assert not any(each.get("stroke-dasharray") for each in elements(drawn, [answer("1", "1")]))


def test_a_marked_moment_is_a_line() -> None:
    """A moment that an annotation marks is a vertical line at its place on the time axis."""
    drawn = panel("timeseries", "x")
    found = [read(drawn.queries[0], [answer("1", "1", "1")])]
    marked = parsed(draw(board(drawn), {"Panel": found}, START_S, END_S, [START_S + 30]))
    (line,) = (each.get("points", "").split() for each in marked if each.get("stroke-dasharray"))
    left, right = (point.split(",")[0] for point in line)
    assert left == right


def test_a_table_joins_what_has_the_same_labels() -> None:
    """A table joins results with equal labels: two queries about one JobSet are one row, another JobSet is another."""
    drawn = panel("table", "Pods", "age")
    found = elements(drawn, [answer("8", jobset="a"), answer("4", jobset="b")], [answer("30", jobset="a")])
    assert words(found)[-9:] == ["jobset", "Pods", "age", "a", "8 s", "30 s", "b", "4 s", ""]


def test_a_number_beyond_its_limit_is_red() -> None:
    """A number beyond its limit is red."""
    drawn = panel("stat", "x", limit=1.0)
    colours = [
        [each.get("fill") for each in elements(drawn, [answer(value)]) if each.get("font-size") == "26"]
        for value in "01"
    ]
    assert colours == [["#73bf69"], ["#f2495c"]]


def test_words_of_a_cluster_are_no_markup() -> None:
    """A reason or a name with < in it stays text."""
    assert "<b>&" in words(elements(panel("bargauge", "{{pod}}"), [answer("1", pod="<b>&")]))


@pytest.mark.parametrize(
    ("value", "unit", "shown"),
    [
        (0.25, "s", "250 ms"),
        (12.3, "s", "12.3 s"),
        (300.0, "s", "5 min"),
        (0.5, "percentunit", "50 %"),
        (2e6, "Bps", "2 MB/s"),
    ],
)
def test_units(value: float, unit: str, shown: str) -> None:
    """Numbers are printed with readable units."""
    assert with_unit(value, unit) == shown


def test_an_unknown_variable_is_noticed() -> None:
    """A query with a variable that no board has is a mistake, not a query for a dollar sign."""
    assert concrete("rate(x[$__rate_interval])", rate_s=4) == "rate(x[4s])"
    with pytest.raises(AssertionError, match=r"\$other"):
        concrete('x{a="$other"}')
