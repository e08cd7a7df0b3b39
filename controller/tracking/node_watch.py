"""What the Pods of one JobSet say of their nodes: who waits behind our gate, whose check failed, who came back."""

from __future__ import annotations

from collections.abc import Iterable

from inplace.common.jobset.bad_nodes import NodeSigns
from inplace.common.jobset.causes import Failure
from inplace.common.jobset.kinds import Pod
from inplace.common.wire import names as wire
from inplace.common.wire.unfit import CHECK_FAILED_EXIT_CODE, WORDS


class NodeWatch:
    """Keeps what the planner asks for; each Pod event costs O(1)."""

    def __init__(self) -> None:
        self._gated: dict[str, Pod] = {}  # by UID
        self._avoiding: dict[str, tuple[str, ...]] = {}  # by UID of a Pod without a node: the nodes it was to avoid
        self._unfit: dict[str, Failure] = {}  # by node, the newest
        self._returned: set[str] = set()

    def note(self, pod: Pod) -> bool:
        """Take in a Pod; say whether it brings news."""
        if (
            pod.spec.scheduling_gates is None
            and not self._gated
            and not self._avoiding
            and pod.status.phase != "Failed"
        ):
            return False  # as with nearly every event
        uid, node = pod.metadata.uid, pod.spec.node_name
        if pod.waits_for(wire.AVOIDANCE_GATE) and pod.metadata.deletion_timestamp is None:
            is_news = uid not in self._gated
            self._gated[uid] = pod
            return is_news
        self._gated.pop(uid, None)
        if node is None:
            return False
        if node in self._avoiding.pop(uid, ()) and not pod.spec.is_pinned:
            self._returned.add(node)
            return True
        failure = _failed_check(pod)
        old = self._unfit.get(node)
        if failure is None or (old is not None and old.finished_at >= failure.finished_at):
            return False
        self._unfit[node] = failure
        return True

    def forget(self, uid: str) -> None:
        """Drop a Pod that is gone."""
        self._gated.pop(uid, None)
        self._avoiding.pop(uid, None)

    def avoids(self, uid: str, nodes: Iterable[str]) -> None:
        """Note that a Pod is let go with the wish to avoid these nodes."""
        self._avoiding[uid] = tuple(nodes)

    def taken_back(self, nodes: Iterable[str]) -> None:
        """Note that the status has forgotten these nodes."""
        self._returned -= set(nodes)

    @property
    def gated(self) -> tuple[Pod, ...]:
        """Return the Pods that wait for us."""
        return tuple(self._gated.values())

    @property
    def has_signs(self) -> bool:
        """Say whether there is anything to decide."""
        return bool(self._gated or self._unfit or self._returned)

    def signs(self, in_use: int) -> NodeSigns:
        """Return what was seen."""
        return NodeSigns(in_use, tuple(self._unfit.values()), frozenset(self._returned))


def _failed_check(pod: Pod) -> Failure | None:
    """Read how a Pod's check failed; None if it did not."""
    for status in pod.status.container_statuses or () if pod.status.phase == "Failed" else ():
        ended = status.state.terminated
        if ended is not None and ended.exit_code == CHECK_FAILED_EXIT_CODE and WORDS in (ended.message or ""):
            return Failure(
                pod.metadata.name,
                pod.spec.node_name or "",
                status.name,
                CHECK_FAILED_EXIT_CODE,
                message=ended.message or "",
                finished_at=ended.finished_at or "",
            )
    return None
