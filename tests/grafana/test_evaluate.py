"""`make dashboards-test` fails when it must: the verdicts, without a Prometheus."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from grafana.panels import Panel, Query
from testbed.grafana.evaluate import Answer, rules, verdict_on
from testbed.grafana.prometheus import Prometheus, PrometheusError
from testbed.grafana.scene import Played

pytestmark = pytest.mark.asyncio


class Canned(Prometheus):
    """A Prometheus with prepared answers."""

    def __init__(self, series: list[Any], told: list[Any] | None = None) -> None:
        super().__init__("http://nowhere", Path("nowhere"))
        self._series = series
        self._told = told or []

    async def instant(self, expr: str, at_s: float) -> list[Any]:
        """Return the prepared series; refuse one expression."""
        if expr == "refuse":
            raise PrometheusError("parse error")
        return self._series

    async def rules(self) -> list[Any]:
        """Return the prepared rules."""
        return self._told


def played(*series: Any, told: list[Any] | None = None, holds: str = "") -> Played:
    """Return a scene that ends with these series."""
    return Played(Canned(list(series), told), 0.0, 60.0, frozenset({holds}))


async def fault(scene: Played, expr: str, *, query_empty: str = "", panel_empty: str = "") -> str:
    """Return the fault of a query of a stat panel."""
    query = Query(expr, "x", query_empty)
    panel = Panel("stat", "Panel", "It is a test.", "s", "InplaceRestartSlow", (query,), panel_empty)
    return (await verdict_on(scene, "board: Panel", panel, query)).fault


NUMBER = {"metric": {}, "value": [60.0, "1"]}
NAN = {"metric": {}, "value": [60.0, "NaN"]}


async def test_a_number_is_right() -> None:
    """A query with a number has no fault."""
    assert await fault(played(NUMBER), "up") == ""


@pytest.mark.parametrize("series", [(), (NAN,)])
async def test_nothing_without_a_reason_is_wrong(series: tuple[Any, ...]) -> None:
    """A query without series, or with NaN, is a fault, unless a reason is given."""
    assert (await fault(played(*series), "up")).startswith("EMPTY")


async def test_a_panels_reason_excuses_only_where_it_holds() -> None:
    """The reason of a panel excuses it only where the scene says that it holds."""
    assert await fault(played(holds="no server"), "up", panel_empty="no server") == ""
    assert (await fault(played(holds="no agent"), "up", panel_empty="no server")).startswith("EMPTY")


async def test_a_querys_own_reason_excuses_everywhere() -> None:
    """The reason of one query among others, such as "no error", holds in every scene."""
    assert await fault(played(), "up", query_empty="no error") == ""


async def test_a_refused_query_is_wrong() -> None:
    """A refused query is a fault with Prometheus' message."""
    assert await fault(played(), "refuse", query_empty="may be empty") == "REFUSED: parse error"


@pytest.mark.parametrize(
    ("rule", "series", "wrong"),
    [
        ({"type": "alerting", "state": "inactive", "health": "ok"}, (), False),
        ({"type": "alerting", "state": "inactive", "health": "err", "lastError": "many-to-many"}, (), True),
        ({"type": "recording", "health": "ok"}, (NUMBER,), False),
        ({"type": "recording", "health": "ok"}, (), True),
    ],
)
async def test_rules(rule: dict[str, str], series: tuple[Any, ...], wrong: bool) -> None:
    """An unhealthy rule or an empty recording is a fault; a silent alert is not."""
    scene = played(*series, told=[rule | {"name": "rule", "query": "up"}])
    answers: list[Answer] = [answer async for answer in rules(scene)]
    assert [bool(answer.fault) for answer in answers] == [wrong]
