"""A mutant: production with a mistake in it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from tests.mistakes.mistake import Mistake

ROOT = Path(__file__).resolve().parents[2]


class Area(Enum):
    """The part of the system that has the bug."""

    PROTOCOL = "protocol"
    AGENT = "agent"
    WATCHDOG = "watchdog"
    INFORMER = "informer"
    QUEUE = "queue"
    LEADER = "leader election"
    BACKOFF = "backoff"
    CONTROLLER = "controller"
    BUDGET = "budget"
    KUBELET = "kubelet"


@dataclass(frozen=True, slots=True)
class Mutant:
    """One planted bug.

    Args:
        name: the mistake, in words.
        mistakes: what is wrong in the code.
        model: the other project's bug that it is modelled on; "" for a bug of our own invention.
        faults: the faults without which it has no effect; AFTER the first seeds, some are drawn from them alone.
    """

    name: str
    area: Area
    mistakes: tuple[Mistake, ...]
    model: str = ""
    faults: tuple[str, ...] = ()
