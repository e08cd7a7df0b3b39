"""Say times and absent annotations in sentences. Pure."""

from __future__ import annotations

from inplace.controller.spec.jobset import JobSet


def duration(seconds: int) -> str:
    """Return whole days, hours or minutes where they fit, else seconds."""
    for unit, size in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds % size == 0:
            return f"{seconds // size} {unit}"
    return f"{seconds} s"


def absence(jobset: JobSet, annotation: str) -> str:
    """Say why an annotation has no effect."""
    return f"{annotation} {'has no effect' if annotation in jobset.annotations else 'is not set'}"
