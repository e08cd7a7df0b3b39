"""
Completion indexes: read a Pod's index, and convert a set of them to and from its compressed text form ("1,3-5").

Source: pkg/controller/job/indexed_job_utils.go.
"""

from __future__ import annotations

from collections.abc import Iterable

from inplace.common.kube.resources import KubeObject
from inplace.common.wire.names import JOB_COMPLETION_INDEX


def index_of(pod: KubeObject) -> int | None:
    """Return a Pod's completion index; None when it has none."""
    text = (pod["metadata"].get("annotations") or {}).get(JOB_COMPLETION_INDEX)
    return int(text) if text is not None and text.isdigit() else None


def compress(indexes: Iterable[int]) -> str:
    """Return the text form of a set of indexes."""
    spans: list[list[int]] = []
    for index in sorted(indexes):
        if spans and index == spans[-1][1] + 1:
            spans[-1][1] = index
        else:
            spans.append([index, index])
    return ",".join(_span(low, high) for low, high in spans)


def expand(text: str) -> set[int]:
    """Return the set of indexes that a text form stands for."""
    indexes: set[int] = set()
    for part in filter(None, text.split(",")):
        low, _, high = part.partition("-")
        indexes.update(range(int(low), int(high or low) + 1))
    return indexes


def _span(low: int, high: int) -> str:
    if low == high:
        return str(low)
    return f"{low},{high}" if high == low + 1 else f"{low}-{high}"
