"""
Write a registry in Prometheus' text format, piece by piece, in less than half the time of prometheus_client.

1,000 JobSets are 16,000 series. The library checks and sorts labels anew for each series. Our labels are valid by
construction: a line is a join of strings, and only unusual values are escaped. The library also collects a whole family
before it writes the first line. Here a reader may pause after every line, and wherever a collector that has `steps`
yields None.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from prometheus_client import CollectorRegistry
from prometheus_client.core import Metric
from prometheus_client.metrics import MetricWrapperBase
from prometheus_client.utils import floatToGoString

SUFFIXED: Final = {"counter": "_total", "info": "_info"}  # what the family's name becomes in the old text format
_ESCAPES: Final = str.maketrans({"\\": r"\\", "\n": r"\n", '"': r"\""})
_HELP_ESCAPES: Final = str.maketrans({"\\": r"\\", "\n": r"\n"})


def pieces(registry: CollectorRegistry) -> Iterator[str]:
    """Yield the exposition, format 0.0.4, in pieces of at most a few lines; some are empty."""
    for collector in tuple(registry._collector_to_names):  # noqa: SLF001 - `collect` hides the collectors
        if isinstance(collector, MetricWrapperBase):
            yield from _streamed(collector)
        else:
            for metric in getattr(collector, "steps", collector.collect)():
                if metric is None:
                    yield ""
                else:
                    yield from _lines(metric)


def _streamed(metric: MetricWrapperBase) -> Iterator[str]:
    """Yield the lines of a metric without making a list of its samples, of which a counter may have 100,000."""
    # Private, of a locked version; a test compares what comes of it with the library's own text.
    family: Metric = metric._get_metric()  # type: ignore[no-untyped-call]  # noqa: SLF001
    yield _head(family)
    for sample in metric._samples():  # noqa: SLF001
        yield _line(family.name + sample.name, sample.labels, sample.value)


def _lines(metric: Metric) -> Iterator[str]:
    yield _head(metric)
    for sample in metric.samples:
        yield _line(sample.name, sample.labels, sample.value)


def _head(metric: Metric) -> str:
    name = metric.name + SUFFIXED.get(metric.type, "")
    kind = "gauge" if metric.type == "info" else metric.type
    return f"# HELP {name} {metric.documentation.translate(_HELP_ESCAPES)}\n# TYPE {name} {kind}\n"


def _line(name: str, labels: Mapping[str, str], value: float) -> str:
    shown = f"{{{_joined(labels)}}}" if labels else ""
    return f"{name}{shown} {_number(value)}\n"


def _joined(labels: Mapping[str, str]) -> str:
    return ",".join([f'{name}="{_escaped(value)}"' for name, value in labels.items()])


def _escaped(value: str) -> str:
    if "\\" in value or '"' in value or "\n" in value:
        return value.translate(_ESCAPES)
    return value


def _number(value: float) -> str:
    """Return a number as Go writes it; most are small whole ones."""
    if value.__class__ is int:
        return f"{value}.0"
    return str(floatToGoString(value))  # type: ignore[no-untyped-call]
