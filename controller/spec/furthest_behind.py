"""
Which Pods were silent first in the epoch that ended: those whose workers were furthest behind.

The Pods say it with their announcements (common/wire/last_progress.py), so it is known when the restart ends, and is
written with its end: `status.lastGroupRestart.firstSilent`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from inplace.common.protocol.stall import LastProgress

NAMED_MAX: Final = 5  # Pods; it goes into every copy of the JobSet


@dataclass(frozen=True, slots=True)
class FurthestBehind:
    """The Pods with the lowest last step.

    Args:
        pods: names, at most NAMED_MAX, the longest silence first.
        count: how many Pods had that step.
        progress: of the first of them.
    """

    pods: tuple[str, ...]
    count: int
    progress: LastProgress

    def fields(self) -> dict[str, Any]:
        """Return status.lastGroupRestart.firstSilent."""
        fields: dict[str, Any] = {"pods": list(self.pods), "count": self.count}
        if self.progress.step is not None:
            fields["step"] = self.progress.step
        return fields | {"quietMilliseconds": round(self.progress.quiet_s * 1000)}


def silent_of_entry(entry: Mapping[str, Any]) -> FurthestBehind | None:
    """Read who was silent first from a status.lastGroupRestart; None if it does not say."""
    found = entry.get("firstSilent")
    if not isinstance(found, Mapping) or not isinstance(pods := found.get("pods"), list) or not pods:
        return None
    step, count, quiet_ms = (_number(found.get(name)) for name in ("step", "count", "quietMilliseconds"))
    return FurthestBehind(tuple(map(str, pods)), count or len(pods), LastProgress(step, (quiet_ms or 0) / 1000))


def _number(value: object) -> int | None:
    return value if isinstance(value, int) else None


def silent_text(silent: FurthestBehind) -> str:
    """Say it in one line, for a person."""
    step = "before any step" if silent.progress.step is None else f"at step {silent.progress.step}"
    others = f" (one of {silent.count:,} pods)" if silent.count > 1 else ""
    return f"pod {silent.pods[0]} was silent first: {step}{others}, quiet for {silent.progress.quiet_s:.1f} s"
