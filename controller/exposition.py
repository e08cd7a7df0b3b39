"""
Write a registry in Prometheus' text format, in less than half the time that prometheus_client takes.

The event loop stands still during a scrape, and 1,000 JobSets are 16,000 series. The library checks and sorts labels
anew for each series; ours are valid by construction: a line is a join of strings, and only odd values are escaped.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator, Mapping
from typing import Final

from prometheus_client import CollectorRegistry
from prometheus_client.core import Metric
from prometheus_client.utils import floatToGoString

SUFFIXED: Final = {"counter": "_total", "info": "_info"}  # what the family's name becomes in the old text format
_ESCAPES: Final = str.maketrans({"\\": r"\\", "\n": r"\n", '"': r"\""})
_HELP_ESCAPES: Final = str.maketrans({"\\": r"\\", "\n": r"\n"})


def text_of(registry: CollectorRegistry) -> bytes:
    """Return the exposition, format 0.0.4; nothing in it is a cycle, so the collector need not look for one."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        return "".join([line for metric in registry.collect() for line in _lines(metric)]).encode()
    finally:
        if was_enabled:
            gc.enable()


def _lines(metric: Metric) -> Iterator[str]:
    name = metric.name + SUFFIXED.get(metric.type, "")
    kind = "gauge" if metric.type == "info" else metric.type
    yield f"# HELP {name} {metric.documentation.translate(_HELP_ESCAPES)}\n# TYPE {name} {kind}\n"
    for sample in metric.samples:
        labels = sample.labels
        shown = f"{{{_joined(labels)}}}" if labels else ""
        yield f"{sample.name}{shown} {_number(sample.value)}\n"


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
