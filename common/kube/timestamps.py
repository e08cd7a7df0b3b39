"""Write the wall time in the two forms that Kubernetes' objects use."""

from __future__ import annotations

from datetime import UTC, datetime

from inplace.common.kube.clock import Clock


def precise_time(wall_s: float) -> str:
    """Return a Unix time with milliseconds, RFC 3339."""
    return datetime.fromtimestamp(wall_s, UTC).isoformat(timespec="milliseconds").removesuffix("+00:00") + "Z"


def micro_time(clock: Clock) -> str:
    """Return the wall time as a metav1.MicroTime."""
    return datetime.fromtimestamp(clock.wall_s(), UTC).isoformat(timespec="microseconds").removesuffix("+00:00") + "Z"


def time_text(clock: Clock) -> str:
    """Return the wall time as a metav1.Time."""
    return datetime.fromtimestamp(clock.wall_s(), UTC).isoformat(timespec="seconds").removesuffix("+00:00") + "Z"
