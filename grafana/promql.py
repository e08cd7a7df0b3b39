"""
PromQL expressions that several panels and rules share.

Series of a JobSet carry its names as labels. Many programs of a cluster expose the metrics of client-go and
prometheus_client under the same names; `ours` keeps the series of processes that expose inplace_build_info. `concrete`
replaces Grafana's variables by values, so that Prometheus can evaluate the queries.
"""

from __future__ import annotations

from typing import Final

RATE: Final = "$__rate_interval"
RANGE: Final = "$__range"
RANGE_S: Final = "$__range_s"  # the same as a number
CLUSTER: Final = 'cluster=~"$cluster"'
JOBSET: Final = f'{CLUSTER},namespace=~"$namespace",jobset=~"$jobset"'
BY_JOBSET: Final = "cluster, namespace, jobset"
ALL: Final = ".*"  # Grafana's replacement for All
PRICE: Final = "16.8"  # of a Pod-hour, which a person may change


def quantile(share: float, histogram: str, *, by: str = "", only: str = CLUSTER) -> str:
    """Return a quantile of a histogram over all processes that expose it."""
    labels = f"le, {by}" if by else "le"
    return f"histogram_quantile({share:g}, sum by ({labels}) (rate({histogram}_bucket{{{only}}}[{RATE}])))"


def mean(histogram: str, *, by: str, only: str = CLUSTER) -> str:
    """Return the mean of a histogram by a label."""
    total, count = (f"sum by ({by}) (rate({histogram}_{part}{{{only}}}[{RATE}]))" for part in ("sum", "count"))
    return f"{total} / ({count} > 0)"


def ours(expr: str) -> str:
    """Return the series of an expression that come from our controllers."""
    return f"({expr} and on (cluster, job, instance) inplace_build_info{{{CLUSTER}}})"


def restarts(window: str) -> str:
    """Return how many group restarts each scope of a JobSet had in a window, whatever caused them.

    By the epoch, which is in the JobSet's status: it survives the controller, and the first restart of a JobSet counts,
    which a counter that appears with value 1 hides from increase(). The first start is no restart, hence the 1.
    """
    epoch = f'inplace_epoch{{{JOBSET},which="synced"}}'
    by = f"{BY_JOBSET}, scope"
    last, first = (
        f"max by ({by}) (max_over_time({epoch}[{window}]))",
        f"min by ({by}) (min_over_time({epoch}[{window}]))",
    )
    return f"clamp_min({last} - clamp_min({first}, 1), 0)"


def counted(counter: str, window: str) -> str:
    """Return by how much a counter of a JobSet, given with its labels, grew in a window.

    Such a series appears with its first count, which increase() cannot see. So a series that was absent when the window
    began counts with its whole value.
    """
    return f"((increase({counter}[{window}]) and {counter} offset {window}) or {counter})"


def none_if_absent(expr: str) -> str:
    """Return 0 where an expression without labels is empty but there are JobSets.

    `or vector(0)` would also say 0 when Prometheus reaches no controller, which looks as if all were well.
    """
    return f"({expr} or 0 * sum(inplace_pods_expected{{{JOBSET}}}))"


def lost_seconds() -> str:
    """Return how many Pod-seconds group restarts took from training in the board's range: 0 where nothing restarted."""
    return none_if_absent(f"sum({counted(f'inplace_lost_pod_seconds_total{{{JOBSET}}}', RANGE)})")


def lost_share() -> str:
    """Return the share of the Pods' time in the board's range in which they did not train, from 0 to 1.

    The maximum over processes: a controller that lost the Lease within the window left series that say the same.
    """
    pods = f"sum(max by ({BY_JOBSET}, scope) (avg_over_time(inplace_pods_expected{{{JOBSET}}}[{RANGE}])))"
    return f"clamp_max({lost_seconds()} / {RANGE_S} / ({pods} > 0), 1)"


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
