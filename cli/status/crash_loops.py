"""Read from a status which scopes fail again and again without progress; pure."""

from __future__ import annotations

from collections.abc import Iterator

from inplace.cli.group.state import GroupState
from inplace.controller.spec.causes import unix_time
from inplace.controller.spec.crash_loop import crash_loop_of
from inplace.controller.spec.scopes import fields_of_scope


def crash_loops(state: GroupState, now_s: float) -> Iterator[tuple[bool, str]]:
    """Yield for each scope in a crash loop whether its next epoch waits, and the crash loop in words."""
    jobset = state.jobset
    if jobset is None or jobset.is_finished:
        return
    for scope in jobset.scopes.values():
        loop = crash_loop_of(fields_of_scope(jobset.status, scope))
        if loop.failures < 2:
            continue
        until_s = unix_time(loop.until)
        waits = loop.epoch == scope.synced + 1 and until_s is not None and until_s > now_s
        named = f"scope {scope.name}: " if scope.name else ""
        yield waits, named + loop.words(now_s, waits=waits)
