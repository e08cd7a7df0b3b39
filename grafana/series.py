"""Prometheus' answer to one query of a panel, as the pictures need it."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Any

from grafana.panels import Query


@dataclass(frozen=True, slots=True)
class Series:
    """One series.

    Args:
        legend: as the panel names it.
        points: (Unix time, value), finite ones only.
    """

    legend: str
    labels: dict[str, str]
    points: tuple[tuple[float, float], ...]

    @property
    def last(self) -> float:
        """Return the newest value."""
        return self.points[-1][1]


def read(query: Query, answer: list[Any]) -> list[Series]:
    """Return the series of an answer of /api/v1/query or /api/v1/query_range that have a number."""
    found = []
    for series in answer:
        labels = {name: value for name, value in series["metric"].items() if name != "__name__"}
        values = series["values"] if "values" in series else [series["value"]]
        points = tuple((float(at), number) for at, text in values if math.isfinite(number := float(text)))
        if points:
            found.append(Series(legend(query.legend, labels), labels, points))
    return found


def legend(pattern: str, labels: dict[str, str]) -> str:
    """Return a text with labels in it, as Grafana writes it; an absent label is empty."""
    return re.sub(r"\{\{(\w+)\}\}", lambda name: labels.get(name[1], ""), pattern).strip(" /")


def with_unit(value: float, unit: str) -> str:
    """Return a number as Grafana's unit shows it."""
    match unit:
        case "percentunit":
            return f"{value * 100:.4g} %"
        case "s" if 0 < abs(value) < 1:
            return f"{value * 1000:.3g} ms"
        case "s" if abs(value) >= 120:
            return f"{value / 60:.3g} min"
        case "s" | "h":
            return f"{value:.3g} {unit}"
        case "bytes" | "Bps" if abs(value) >= 1e6:
            return f"{value / 1e6:.3g} MB" + ("/s" if unit == "Bps" else "")
        case "bytes" | "Bps":
            return f"{value / 1e3:.3g} kB" + ("/s" if unit == "Bps" else "")
        case "reqps" | "ops":
            return f"{value:.3g}/s"
        case "currencyUSD":
            return f"${value:.2f}"
        case _:
            return f"{value:.4g}"
