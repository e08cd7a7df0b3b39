"""Mistakes in the controller's ledger, which campaign and model checker must find."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Final

from inplace.common.protocol import ledger
from inplace.common.protocol.ledger import Ledger
from inplace.common.protocol.pod_view import PodLife
from tests.mistakes.mistake import Mistake, instead_of


def _believes(original: Callable[..., None], self: Ledger, record: ledger._Record) -> None:
    synced, self.synced = self.synced, max(self.synced, (record.pod.epoch or 0) - 1)
    original(self, record)
    self.synced = synced


def _remembers_the_dead(original: Callable[..., None], self: Ledger, synced: int, deprecated: int) -> None:
    broken = set(self._broken)
    original(self, synced, deprecated)
    self._broken |= broken


def _ignores_ghosts(original: Callable[..., bool], self: Ledger, top: int) -> bool:
    ghosts, self._ghosts = self._ghosts, 0
    complete = original(self, top)
    self._ghosts = ghosts
    return complete


def restarts_beyond(count: int) -> Mistake:
    """Let maxRestarts allow so many restarts more than it says."""
    return instead_of(
        Ledger.decide,
        lambda original, self, *, restarts_max, uncounted=0: original(
            self, restarts_max=restarts_max + count, uncounted=uncounted
        ),
    )


ONE_OF_TWO_PODS_COUNTS: Final = instead_of(
    ledger._only_live,
    lambda original, slot: original({"": max(slot.values(), key=lambda record: record.epoch or 0)}) if slot else None,
)
LEAVING_IS_GONE: Final = instead_of(
    ledger._may_run, lambda original, record: record.pod.life is PodLife.LIVE and original(record)
)
GHOSTS_ARE_IGNORED: Final = instead_of(Ledger._is_complete, _ignores_ghosts)
ANY_EPOCH_IS_BELIEVED: Final = instead_of(Ledger._read_announcement, _believes)
THE_DEAD_ARE_REMEMBERED: Final = instead_of(Ledger.learn, _remembers_the_dead)
OLD_EXIT_COUNTS: Final = instead_of(
    Ledger._has_broken,
    lambda original, self, record: original(self, replace(record, instance_synced=self.synced)),
)
NEVER_SEEN_RUNNING_COUNTS: Final = instead_of(
    Ledger._has_broken, lambda original, self, record: original(self, replace(record, ran=True))
)
COMPLETED_JOBS_STAY: Final = instead_of(Ledger._to_recreate, lambda original, self: frozenset())
