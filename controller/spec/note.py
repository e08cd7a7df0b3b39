"""The words of one Event about a JobSet."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Note:
    """An Event about the JobSet."""

    reason: str
    message: str
    warning: bool = False
