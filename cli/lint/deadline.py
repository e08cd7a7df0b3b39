"""
Find time limits of Jobs and Pods that were set for one attempt, and bound a whole run in place. Pure.

A restart that recreates Jobs begins these limits again. A restart in place keeps the Job and its Pods, and so their
limits run on.
"""

from __future__ import annotations

from collections.abc import Iterator

from inplace.cli.terminal.moments import whole_duration_text
from inplace.common.injection.finding import Finding
from inplace.common.injection.pod_roles import Member

_FIELD = "activeDeadlineSeconds"


def check_deadlines(member: Member) -> Iterator[Finding]:
    """Yield limits that restarts in place do not begin again."""
    for path, kind, seconds in _limits(member):
        fix = f"allow for the whole run, or remove it; spec.{_FIELD} of the JobSet bounds a run as well"
        found = f"{whole_duration_text(seconds)} from the {kind}'s start, which go on through every restart in place"
        yield Finding("active-deadline", f"{path}.{_FIELD}", found, "a time for the whole run", fix)


def deadline_sentence(member: Member) -> str:
    """Say when the Job or the Pods end whatever happens; "" for never."""
    ends = [
        f"Each {kind} ends {whole_duration_text(seconds)} after its start with the reason DeadlineExceeded; restarts "
        f"in place do not begin this time again ({_FIELD})."
        for _, kind, seconds in _limits(member)
    ]
    return " ".join(ends)


def _limits(member: Member) -> Iterator[tuple[str, str, int]]:
    """Yield where a limit stands, what it ends, and its seconds."""
    places = ((member.job_path, "Job", member.job_spec), (member.pod_path, "Pod", member.pod_spec))
    for path, kind, spec in places:
        seconds = spec.get(_FIELD)
        if isinstance(seconds, int) and not isinstance(seconds, bool):
            yield path, kind, seconds
