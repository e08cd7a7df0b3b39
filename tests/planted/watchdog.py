"""Bugs of the watchdog: it restarts healthy groups, or leaves groups that hang."""

from __future__ import annotations

from collections.abc import Callable

from inplace.agent.progress.folder import ProgressFolder, _EpochFiles
from inplace.agent.progress.rank_files import make_folder
from inplace.agent.progress.stall_watch import StallWatch
from inplace.agent.progress.watchdog import Watchdog
from inplace.common.bare.record import replace
from inplace.common.protocol.rank import FIRST_STEPS, RankLook, RankState, changed_rank
from inplace.common.wire.progress import parse_progress
from tests.planted.bug import Area, hunted
from tests.planted.mistake import instead_of


def _keeps_what_is_there(original: Callable[..., str], self: ProgressFolder, *, runs: bool) -> str:
    return make_folder(self._folder)


def _forgets_what_was(original: Callable[..., str], self: _EpochFiles, epoch: int | None, *, runs: bool = False) -> str:
    problem = original(self, epoch, runs=runs)
    self._before = {}
    return problem


def _counts_samples(
    original: Callable[..., RankState], old: RankState | None, seen: RankLook, watched_s: float
) -> RankState:
    after = original(old, seen, watched_s)
    if old is None or not (old.seen.begun and seen.begun):
        return after
    steps = old.steps + (seen.step or 0) - (old.seen.step or 0)
    return replace(after, steps=min(max(after.steps, steps), FIRST_STEPS))


WATCHDOG = (
    hunted(
        "stale progress: files of the last epoch count in the next one",
        Area.WATCHDOG,
        (
            instead_of(ProgressFolder._make_ready, _keeps_what_is_there),
            instead_of(_EpochFiles.begin, _forgets_what_was),
            instead_of(parse_progress, lambda original, content: replace(original(content), epoch=None)),
        ),
        "DLRover: steps of the run before are taken for a hang of the new one",
    ),
    hunted(
        "a step number that grows by more than one is several steps",
        Area.WATCHDOG,
        (instead_of(changed_rank, _counts_samples),),
    ),
    hunted(
        "a hang is found and not told",
        Area.WATCHDOG,
        (
            instead_of(
                Watchdog.watch,
                lambda original, self, worker, on_stall, *rest: original(self, worker, lambda stalled: None, *rest),
            ),
        ),
    ),
    hunted(
        "a busy rank excuses its own Pod alone",
        Area.WATCHDOG,
        (instead_of(StallWatch.excuse, lambda original, self, for_s: None),),
    ),
)
