"""
Guess which worker failed first from the containers' last states, for a status that does not say.

It is a guess and is called one: kubelet records whole seconds, and a group restart ends every worker within a few
seconds. Of the workers that ended in the newest run it takes the one that ended first. Of those in the same second it
takes one that was not told to end.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from inplace.cli.group.pod_facts import PodFact
from inplace.common.jobset.causes import unix_time

SAME_RUN_S = 60.0  # workers of one epoch start within this: a startup probe's period, and slow nodes
STOPPED = (137, 143)  # SIGKILL and SIGTERM: how kubelet ends the others


class FirstFailure(NamedTuple):
    """When a container ended, and the fields that status.lastGroupRestart.firstFailure has."""

    at_s: float
    fields: dict[str, str | int]


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
    fields: dict[str, str | int | None] = {"pod": pod.name, "node": pod.spec.node_name, "container": container.name}
    fields |= {"exitCode": ended.exit_code, "reason": ended.reason}
    return FirstFailure(at_s, {name: value for name, value in fields.items() if value})
