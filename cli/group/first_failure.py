"""
Guess which worker failed first from the containers' last states, for a status that does not say.

It is a guess and is called one: kubelet records whole seconds, and a group restart ends every worker within a few
seconds. Of the workers that ended in the newest run it takes the one that ended first. Of those in the same second it
takes one that was not told to end.
"""

from __future__ import annotations

from collections.abc import Iterable

from inplace.cli.group.pod_facts import PodFact
from inplace.common.bare.record import record
from inplace.controller.spec.causes import unix_time

SAME_RUN_S = 60.0  # workers of one epoch start within this: a startup probe's period, and slow nodes
STOPPED = (137, 143)  # SIGKILL and SIGTERM: how kubelet ends the others


@record
class FirstFailure:
    """One container that ended."""

    pod: str
    node: str | None
    container: str
    exit_code: int
    reason: str | None
    at_s: float

    def as_data(self) -> dict[str, str | int]:
        """Return the fields that status.lastGroupRestart.firstFailure has."""
        fields = {"pod": self.pod, "node": self.node, "container": self.container, "reason": self.reason}
        return {"exitCode": self.exit_code} | {name: value for name, value in fields.items() if value}


def first_failure(pods: Iterable[PodFact]) -> FirstFailure | None:
    """Return the worker that failed first in the newest run that ended; None when none is remembered."""
    ends = [
        (began_s, ended_s, pod, container, ended)
        for pod in pods
        for container in pod.workers
        if (ended := container.last_end) is not None
        and ended.exit_code != 0
        and not (pod.is_leaving and ended.exit_code in STOPPED)  # it was deleted, such as by a suspension
        and (began_s := unix_time(ended.started_at)) is not None
        and (ended_s := unix_time(ended.finished_at)) is not None
    ]
    if not ends:
        return None
    newest_s = max(began_s for began_s, *_ in ends)
    _, at_s, pod, container, ended = min(
        (end for end in ends if end[0] >= newest_s - SAME_RUN_S),
        key=lambda end: (end[1], end[4].exit_code in STOPPED and end[4].reason != "OOMKilled", end[2].name),
    )
    return FirstFailure(pod.name, pod.spec.node_name, container.name, ended.exit_code, ended.reason, at_s)
