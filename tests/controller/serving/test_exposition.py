"""The exposition agrees with prometheus_client's, and is faster."""

from __future__ import annotations

import pytest
from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    Info,
    disable_created_metrics,
    generate_latest,
)
from prometheus_client.parser import text_string_to_metric_families

from inplace.controller.serving.exposition import pieces
from tests.controller.serving.filled_metrics import filled

ODD = 'a "quoted" \\ word\nand a line, {x="y"} und \u00fc'


def facts(text: bytes) -> list[object]:
    """Return a scraper's result: families and samples, independent of the order of labels."""
    return [
        (family.name, family.type, family.documentation, [(s.name, s.labels, s.value) for s in family.samples])
        for family in text_string_to_metric_families(text.decode())
    ]


def test_odd_values_are_written_as_the_library_writes_them() -> None:
    """Quotes, backslashes, lines, large and special numbers, every kind of metric."""
    disable_created_metrics()  # type: ignore[no-untyped-call] # as `controller.metrics` does
    registry = CollectorRegistry()
    gauge = Gauge("some_gauge", ODD, ("b", "a"), registry=registry)
    for number, value in enumerate((0, 1, 0.1, 1e9, 1.7e18, float("inf"), float("-inf"), 12345678.5, -3)):
        gauge.labels(ODD, str(number)).set(value)
    Counter("some", "A counter.", ("a",), registry=registry).labels("x").inc(3)
    Counter("none", "A counter without series.", ("a",), registry=registry)
    Histogram("some_seconds", "A histogram.", ("phase",), registry=registry).labels("p").observe(0.3)
    Info("some_build", "An info.", registry=registry).info({"version": "1"})
    assert facts("".join(pieces(registry)).encode()) == facts(generate_latest(registry))


@pytest.mark.virtual_time
async def test_a_controllers_metrics_are_written_as_the_library_writes_them() -> None:
    """All families, with JobSets that have restarted, equal the library's text, without the _created series."""
    metrics = filled(3, 2)
    metrics.reconcile_seconds.labels("jobset").observe(0.3)
    metrics.registry.unregister(metrics.process)  # the numbers of this process change
    text, expected = metrics.text(), generate_latest(metrics.registry)
    assert facts(text) == facts(expected)
    assert b"inplace_first_failure_info{" in text
    assert b"_created" not in text
