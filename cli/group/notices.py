"""
The notices of the epochs that run: what Pods tell of workers that work on, and what of it can be said.

Of many ranks of a scope that got slower none is named: perhaps all did. Pure; the words of one notice are
common/jobset/notices.py's.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from inplace.cli.terminal.moments import clock_text, count_text
from inplace.common.jobset.causes import unix_time
from inplace.common.jobset.notices import GroupNotice, notices_of
from inplace.common.jobset.scopes import Scope
from inplace.common.protocol.bounds import BUSY_S_MAX
from inplace.common.wire.notice import BUSY, LISTED_MAX, SLOW

LINES_MAX: Final = 10  # `-o json` has all; the CRD allows 64
YEAR_10000_S: Final = 253_402_300_800.0  # Unix time; no datetime is later
ALL_SLOWER: Final = f"{LISTED_MAX} ranks or more got slower: perhaps all did (longer inputs?)"


def running_notices(status: Mapping[str, Any], scopes: Mapping[str, Scope]) -> list[GroupNotice]:
    """Return the notices of the epochs that run, in the order of the status."""
    running = {(scope.name, scope.synced) for scope in scopes.values() if scope.is_running}
    return [one for one in notices_of(status) if (one.scope, one.epoch) in running]


def by_kind(notices: Iterable[GroupNotice], now_s: float) -> Iterator[tuple[str, str, Sequence[GroupNotice]]]:
    """Yield (scope, kind, its notices); a rank that is no longer busy is left out.

    Args:
        notices: of epochs that run.
        now_s: wall time.
    """
    found: dict[tuple[str, str], list[GroupNotice]] = {}
    for one in notices:
        until_s = busy_until_s(one)
        if until_s is None or until_s > now_s:
            found.setdefault((one.scope, one.kind), []).append(one)
    for (scope, kind), ones in found.items():
        yield scope, kind, ones


def busy_until_s(notice: GroupNotice) -> float | None:
    """Return until when a busy rank excuses its group, by its node's clock; None if the notice does not say it."""
    at_s = unix_time(notice.at) if notice.kind == BUSY else None
    until_s = None if at_s is None else at_s + min(notice.value, BUSY_S_MAX)
    return until_s if until_s is not None and until_s < YEAR_10000_S else None


def names_nobody(kind: str, notices: Sequence[GroupNotice]) -> bool:
    """Say whether so many ranks got slower that none of them is to blame."""
    return kind == SLOW and len(notices) >= LISTED_MAX


def in_scope(scope: str, words: str) -> str:
    """Put a scope's name before words about it; a JobSet that restarts as a whole has none."""
    return f"scope {scope}: {words}" if scope else words


def busy_text(notices: Sequence[GroupNotice]) -> str:
    """Say until when busy ranks of one scope excuse their group; their Pods tell it again while they are busy."""
    last = max(notices, key=lambda one: busy_until_s(one) or 0.0)
    until_s = busy_until_s(last)
    if until_s is None:
        return str(last)
    who = f"{last.who} is busy" if len(notices) == 1 else f"{last.who} and {len(notices) - 1} more are busy"
    whose = "its" if len(notices) == 1 else "their"
    return f"{who}: no silence of {whose} group is a stall until about {clock_text(until_s)} UTC"


def notice_lines(notices: Iterable[GroupNotice], now_s: float) -> list[str]:
    """Return a line for each notice, at most LINES_MAX and one that says how many more there are."""
    lines = []
    for scope, kind, ones in by_kind(notices, now_s):
        if kind == BUSY:
            said = [busy_text(ones)]
        else:
            said = [ALL_SLOWER] if names_nobody(kind, ones) else [str(one) for one in ones]
        lines += [in_scope(scope, words) for words in said]
    rest = len(lines) - LINES_MAX
    return [*lines[:LINES_MAX], f"and {count_text(rest, 'notice')} more: -o json"] if rest > 0 else lines
