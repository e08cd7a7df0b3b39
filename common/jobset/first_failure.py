"""
Decide which failure of a group came first, in whatever order its Pods tell of theirs: the one place that does.

The words come first. What says that a peer is gone ("Connection closed by peer", a collective that timed out) is the
sign of somebody else's failure, however early it was told: a process that fails may take a second to end, and its peers
need a millisecond to notice. Between two failures that both, or neither, say so, the moments decide: when the exception
ended a rank, or else when the process ended. Where they cannot (kubelet has whole seconds), the one that was told first
stays. Pure; docs/adr/0039.
"""

from __future__ import annotations

from typing import Final

from inplace.common.jobset.causes import Failure, Trigger, unix_time
from inplace.common.wire.last_line import is_peers_sign

OWN_ENDS: Final = (Trigger.WORKER_EXIT, Trigger.STALLED)
"""What one of the group's own workers does, and what therefore may turn out to follow from another's failure."""


def came_before(late: Failure, known: Failure) -> bool:
    """Say whether a failure that was told later is the one that came first.

    Args:
        late: that was told now.
        known: the first one so far.
    """
    if is_peers_sign(late.last_line) != is_peers_sign(known.last_line):
        return is_peers_sign(known.last_line)
    if not _says_how(known):
        return _says_how(late)
    late_at, known_at = moment_of(late.finished_at), moment_of(known.finished_at)
    return late_at is not None and known_at is not None and late_at < known_at and late_at[1] <= known_at[0]


def moment_of(text: str) -> tuple[float, float] | None:
    """Return from when to when something happened: kubelet cuts the moment to whole seconds. None for no time."""
    at_s = unix_time(text)
    if at_s is None:
        return None
    return at_s, at_s if "." in text else at_s + 1.0


def _says_how(failure: Failure) -> bool:
    return failure.exit_code is not None or bool(failure.reason)
