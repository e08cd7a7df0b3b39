"""What the controller tells people about a JobSet: the words of one Event."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Note:
    """An Event about the JobSet."""

    reason: str
    message: str
    warning: bool = False
