"""
Which Pods were silent first in the epoch that ended: those whose workers were furthest behind.

The Pods say it with their announcements (common/wire/last_progress.py), so it is known when the restart ends, and is
written with its end: `status.lastGroupRestart.firstSilent`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from inplace.common.bare.record import record
from inplace.common.protocol.stall import LastProgress
from inplace.controller.spec.causes import Trigger

NAMED_MAX: Final = 5  # Pods; it goes into every copy of the JobSet


@record
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


def silent_text(silent: FurthestBehind | None, trigger: str | None, failed: Mapping[str, Any] | None) -> str:
    """Say it in one line, for a person; "" where it is no news.

    It is none if the Pod that failed first, and did not hang, was itself as far behind as any.

    Args:
        silent: the Pods furthest behind; None if nobody told.
        trigger: of the group restart.
        failed: its first failure.
    """
    if silent is None or (trigger != Trigger.STALLED.value and (failed or {}).get("pod") in silent.pods):
        return ""
    step = "before any step" if silent.progress.step is None else f"at step {silent.progress.step}"
    quiet_s = f"{silent.progress.quiet_s:.1f} s"
    if silent.count == 1:
        return f"pod {silent.pods[0]} was silent first: {step}, quiet for {quiet_s}"
    return (
        f"{silent.count:,} pods were furthest behind, {step}: steps cannot tell which of them was silent first; "
        f"pod {silent.pods[0]} was quiet longest, {quiet_s}"
    )
