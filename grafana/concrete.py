"""Replace Grafana's variables by values, so that Prometheus can evaluate the queries."""

from __future__ import annotations

from typing import Final

ALL: Final = ".*"  # Grafana's replacement for All
PRICE: Final = "16.8"  # of a Pod-hour, which a person may change


def concrete(expr: str, *, rate_s: int = 60, range_s: int = 3600, jobset: str = ALL) -> str:
    """Return an expression of a panel as Grafana would send it.

    Args:
        expr: with Grafana's variables.
        rate_s: $__rate_interval, which Grafana makes at least four scrapes long.
        range_s: the range of the board.
        jobset: the chosen JobSets.
    """
    values = {
        "__rate_interval": f"{rate_s}s",
        "__range_s": f"{range_s}",
        "__range": f"{range_s}s",
        "price": PRICE,
        "cluster": ALL,
        "namespace": ALL,
        "jobset": jobset,
    }
    for name, value in values.items():
        expr = expr.replace(f"${name}", value)
    assert "$" not in expr, f"expected only the variables {sorted(values)}, saw {expr}"
    return expr
