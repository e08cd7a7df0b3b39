"""
How often each index of a Job failed (`backoffLimitPerIndex`): its Pods' annotations tell, and its back-off is its own.

Source: pkg/controller/job/indexed_job_utils.go v1.37 (isIndexFailed, getPodsWithDelayedDeletionPerIndex).
"""

from __future__ import annotations

from dataclasses import dataclass

from inplace.common.kube.resources import KubeObject
from inplace.common.wire import names as wire


@dataclass(frozen=True, slots=True)
class IndexFailures:
    """The failed Pods of one index, for the Pod that replaces the last one.

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
