"""The explored configurations: each trades Pods for faults, so that its state space stays small enough."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from tests.model.pods import KINDS, Config


def kinds(words: str) -> frozenset[str]:
    """Return a set of faults."""
    return frozenset(words.split())


# One slot is enough: what the fence keeps apart are two Pods of one slot. Two faults are two cuts, too.
FENCED: Final = Config(1, 1, kinds("cut"), supervisor=True, overlap=True, fence=True)
FENCED_BESIDE_A_DEATH: Final = replace(FENCED, faults=2, kinds=kinds("cut worker"), stale=1)

# The largest first, so that two processes finish at about the same time.
FULL: Final = (
    FENCED_BESIDE_A_DEATH,
    replace(FENCED_BESIDE_A_DEATH, kinds=kinds("cut controller")),
    replace(FENCED, slots=2, stale=1),
    Config(2, 2, KINDS, overlap=True),
    Config(2, 3, kinds("worker replace controller")),
    Config(3, 1, kinds("worker replace handover patch"), overlap=True),
    Config(3, 1, kinds("worker handover"), overlap=True, early=True),
    Config(2, 2, KINDS, old_watches=True),
    Config(2, 2, kinds("worker controller handover success"), early=True),
    Config(1, 4, KINDS),
    Config(3, 2, kinds("worker replace controller"), ghosts=1),
    Config(1, 2, KINDS, overlap=True, early=True, old_watches=True),
    Config(2, 1, KINDS, overlap=True, early=True, old_watches=True),
    Config(3, 1, KINDS, old_watches=True),
    Config(2, 2, KINDS, supervisor=True),
    Config(2, 3, kinds("worker agent success"), supervisor=True),
    Config(2, 1, KINDS, supervisor=True, early=True),
    Config(2, 1, KINDS, supervisor=True, overlap=True, old_watches=True),
    Config(3, 1, kinds("worker agent patch"), supervisor=True),
    Config(2, 3, kinds("agent worker patch success")),
    Config(2, 3, kinds("agent worker patch controller"), admission=True, dropped=frozenset({"late patch"})),
    Config(3, 2, kinds("worker controller"), restarts_max=1),
    Config(2, 3, kinds("agent worker"), restarts_max=2),
    Config(2, 2, KINDS, ghosts=1),
    Config(3, 0, KINDS),
    Config(2, 2, kinds("worker agent replace controller"), tells=True),
    Config(2, 3, kinds("worker handover"), tells=True),
    Config(3, 1, kinds("worker controller"), early=True, tells=True),
    Config(2, 2, kinds("lost replace controller")),
    Config(2, 2, kinds("lost worker agent patch")),
    Config(3, 2, kinds("lost controller")),
    Config(1, 3, kinds("lost torn worker agent replace controller")),
    Config(2, 2, kinds("lost worker agent"), supervisor=True),
    Config(2, 2, kinds("torn worker controller")),
    Config(2, 1, kinds("torn worker agent"), supervisor=True),
    FENCED,
)
QUICK: Final = (
    Config(1, 2, KINDS, overlap=True),
    Config(2, 1, KINDS, old_watches=True),
    Config(2, 1, kinds("worker replace handover"), overlap=True, early=True),
    Config(2, 2, kinds("worker success")),
    Config(2, 1, kinds("worker controller"), tells=True),
    Config(2, 2, kinds("worker"), restarts_max=1),
    Config(2, 1, KINDS, ghosts=1),
    Config(2, 1, KINDS, supervisor=True),
    Config(2, 2, kinds("lost controller")),
    Config(1, 3, kinds("lost worker controller")),
    Config(2, 1, kinds("torn")),
    FENCED,
    Config(1, 3, kinds("worker patch controller"), admission=True, dropped=frozenset({"late patch"})),
)
