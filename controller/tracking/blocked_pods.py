"""Remember which Pods of one JobSet have a container that kubelet cannot start."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from inplace.common.jobset.blocked import Blocked, BlockedCause, causes_of
from inplace.common.jobset.kinds import Pod


class BlockedPods:
    """Keeps why, by the Pod's name; whether the Pod still exists is asked of the cache, so that none is left over."""

    def __init__(self) -> None:
        self._why: dict[str, Blocked] = {}
        self._since_s = 0.0

    def note(self, pod: Pod, now_s: Callable[[], float]) -> bool:
        """Take in a Pod; say whether it brings news. The clock is asked only of the first one that is blocked."""
        name, why = pod.metadata.name, _blocked(pod)
        if why is None:
            return self._why.pop(name, None) is not None
        if not self._why:
            self._since_s = now_s()
        is_news = name not in self._why
        self._why[name] = why
        return is_news

    def causes(self, find: Callable[[str], Pod | None]) -> Sequence[BlockedCause]:
        """Return why Pods are blocked, most Pods first.

        Args:
            find: returns a Pod of the JobSet's namespace by its name.
        """
        self._why = {name: why for name, why in self._why.items() if find(name) is not None}
        return causes_of(self._why.values())

    def lasts_s(self, now_s: float) -> float:
        """Return for how long some Pod has been blocked."""
        return now_s - self._since_s if self._why else 0.0


def _blocked(pod: Pod) -> Blocked | None:
    """Return why a Pod is blocked; one that has ended, or ends, waits for nothing."""
    if pod.status.phase in ("Failed", "Succeeded") or pod.metadata.deletion_timestamp is not None:
        return None
    return pod.status.blocked
