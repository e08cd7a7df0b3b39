"""
Give each index of a Job a back-off of its own: `backoffLimitPerIndex`, at a limit that no index reaches. Pure.

Without it the Job controller waits 10 s x 2^(n-1), at most 10 minutes, for the n Pods that the whole Job has lost: 80 s
after a drain of four. Source: k8s.io/kubernetes pkg/controller/job/backoff_utils.go. docs/adr/0091
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any, Final

from inplace.common.injection.pod_failure_policy import fails_indexes
from inplace.common.jobset.causes import unix_time
from inplace.common.protocol.bounds import INT32_MAX

FIELD: Final = "backoffLimitPerIndex"
LIMIT: Final = INT32_MAX
FIRST_S: Final = 10.0  # from the end of the first Pod that an index loses; twice as long for each one more
WAIT_S_MAX: Final = 600.0
_DOUBLINGS_MAX: Final = 6  # 10 s x 2^6 is beyond WAIT_S_MAX


def next_pod_words(failures: str | None, ignored: str | None, ends: Iterable[object]) -> str:
    """Say when a Job makes the next Pod of an index; "" where that is not known.

    Args:
        failures: the annotation of the Pod that ended; None where its index has no back-off of its own.
        ignored: the other annotation; both count, and what is no number is 0.
        ends: when its containers finished, RFC 3339.
    """
    ended_s = max((end_s for end in ends if (end_s := unix_time(end)) is not None), default=None)
    if failures is None or ended_s is None:
        return ""
    before = sum(int(text) for text in (failures, ignored) if text and text.isascii() and text.isdigit())
    waits_s = min(FIRST_S * 2 ** min(before, _DOUBLINGS_MAX), WAIT_S_MAX)
    at = datetime.fromtimestamp(ended_s + waits_s, UTC).isoformat(timespec="seconds").removesuffix("+00:00")
    return f"its Job makes the next one at {at}Z, {waits_s:.0f} s after its end"


def is_limited(job_spec: Mapping[str, Any]) -> bool:
    """Say whether an index may fail for good: then the barrier waits for it for ever."""
    return job_spec.get(FIELD) not in (None, LIMIT)


def back_off_per_index(job_spec: dict[str, Any]) -> None:
    """Set the field if it is absent and the API accepts it.

    Beside a rule that fails an index for good nothing is set: the API refuses such a Job without the field, and rightly
    so, because the barrier would wait for that index for ever.
    """
    pod_spec = (job_spec.get("template") or {}).get("spec") or {}
    is_taken = job_spec.get("completionMode", "Indexed") == "Indexed" and pod_spec.get("restartPolicy") == "Never"
    if is_taken and job_spec.get(FIELD) is None and not fails_indexes(job_spec):
        job_spec[FIELD] = LIMIT
