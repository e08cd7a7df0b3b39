"""A JobSet's status as the server stores it, and as production's `common.wire.names` reads it."""

from __future__ import annotations

from inplace.common.wire import names as wire
from tests.model.memo import memo
from tests.model.rules import Epochs, Version


class Statuses:
    """Reads stored versions."""

    @memo
    def read(self, version: Version) -> Epochs:
        """Return (S, D) as agents and controllers read a version."""
        _, synced, deprecated = version
        return wire.epochs_of_status({wire.SYNCED_EPOCH: synced, wire.DEPRECATED_EPOCH: deprecated})


def spoiled(versions: tuple[Version, ...], kinds: frozenset[str]) -> list[tuple[str, Version, int]]:
    """Return the possible changes of a status by a person: the text, the version, and the restarts that it may cost.

    The status may be lost, whole or back to an older version, which begins a new life of it; or D may be beyond S.
    """
    life, synced, deprecated = versions[-1]
    found: list[tuple[str, Version, int]] = []
    if "lost" in kinds and (synced, deprecated) > (0, 0):
        older = {(0, 0), *(version[1:] for version in versions if version[1:] < (synced, deprecated))}
        found += [(f"the status is lost: S={back[0]} D={back[1]}", (life + 1, *back), 1) for back in sorted(older)]
    if "torn" in kinds and deprecated <= synced:
        found.append((f"somebody writes D={synced + 1} beyond S={synced}", (life, synced, synced + 1), 2))
    return found
