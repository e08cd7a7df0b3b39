"""The words of one Event about a JobSet."""

from __future__ import annotations

from inplace.common.bare.record import record


@record
class Note:
    """An Event about the JobSet."""

    reason: str
    message: str
    warning: bool = False
