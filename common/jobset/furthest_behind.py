"""
Which Pods were silent first in the epoch that ended: those whose workers were furthest behind.

The Pods say it with their announcements (common/wire/last_progress.py), so it is known when the restart ends, and is
written with its end: `status.lastGroupRestart.firstSilent`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from inplace.common.bare.record import record
from inplace.common.jobset.causes import Failure, Trigger
from inplace.common.protocol.last_progress import LastProgress
from inplace.common.wire.last_line import is_peers_sign

NAMED_MAX: Final = 5  # Pods; it goes into every copy of the JobSet


@record
class FurthestBehind:
    """The Pods with the lowest last step.

    Args:
        pods: names, at most NAMED_MAX, the longest silence first.
        count: how many Pods had that step, or told none.
        progress: of the first of them.
        node: of the first of them; "" if that is not known.
    """

    pods: tuple[str, ...]
    count: int
    progress: LastProgress
    node: str = ""

    @property
    def only(self) -> str:
        """Return the one Pod that was silent first; "" where steps cannot tell."""
        return self.pods[0] if self.count == 1 else ""

    @property
    def hang(self) -> Failure | None:
        """Return the failure of the one Pod that was silent first; None where steps cannot tell.

        The others wait for it, and any of them may be the first to tell.
        """
        if not self.only:
            return None
        return Failure(self.only, self.node, reason=Trigger.STALLED.reason, message=f"silent first, {self.where}")

    @property
    def where(self) -> str:
        """Return the step of these Pods, in words."""
        return "before any step" if self.progress.step is None else f"at step {self.progress.step}"

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

    It is none if the Pod that failed first, and did not hang, was itself as far behind as any, or said why it failed.

    Args:
        silent: the Pods furthest behind; None if nobody told.
        trigger: of the group restart.
        failed: its first failure.
    """
    failed = failed or {}
    line = str(failed.get("lastLine") or "")
    is_known = failed.get("pod") in (silent.pods if silent is not None else ()) or (line and not is_peers_sign(line))
    if silent is None or (trigger != Trigger.STALLED.value and is_known):
        return ""
    quiet_s = f"{silent.progress.quiet_s:.1f} s"
    if silent.only:
        return f"pod {silent.only} was silent first: {silent.where}, quiet for {quiet_s}"
    return (
        f"{silent.count:,} pods were furthest behind, {silent.where}: steps cannot tell which of them was silent "
        f"first; pod {silent.pods[0]} was quiet longest, {quiet_s}"
    )
