"""
Completion indexes: a Pod's index, sets of them in their compressed text form ("1,3-5"), and how often each failed.

Source: pkg/controller/job/indexed_job_utils.go.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from inplace.common.kube.resources import KubeObject
from inplace.common.wire import names as wire
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


@dataclass(frozen=True, slots=True)
class IndexFailures:
    """The failed Pods of one index (`backoffLimitPerIndex`), for the Pod that replaces the last one.

    Its Pods' annotations tell of them, and the back-off is the index's own.

    Args:
        counted: towards backoffLimitPerIndex.
        ignored: by the Pod failure policy.
        at_s: when the last one was seen, as wall seconds.
        is_last_counted: the last one was not ignored. status.failed has it once it is replaced.
    """

    counted: int = 0
    ignored: int = 0
    at_s: float = 0.0
    is_last_counted: bool = False

    def annotations(self) -> dict[str, str]:
        """Return what the next Pod of the index says of them."""
        ignored = {wire.INDEX_FAILURES_IGNORED: str(self.ignored)} if self.ignored else {}
        return {wire.INDEX_FAILURES: str(self.counted)} | ignored

    def after(self, now_s: float, *, counts: bool) -> IndexFailures:
        """Return them with one more."""
        return IndexFailures(self.counted + counts, self.ignored + (not counts), now_s, counts)


def failures_before(pod: KubeObject) -> IndexFailures:
    """Return the failures that a Pod's annotations tell: those before its own."""
    annotations = pod["metadata"].get("annotations") or {}
    counted, ignored = (
        _number(str(annotations.get(name, ""))) for name in (wire.INDEX_FAILURES, wire.INDEX_FAILURES_IGNORED)
    )
    return IndexFailures(counted, ignored)


def _number(text: str) -> int:
    return int(text) if text.isdigit() else 0
