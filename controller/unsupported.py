"""Say aloud which fields of a manifest this version does not act on; none is ignored in silence."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from controller.draft import Draft
from controller.jobset import JobSet

EXCLUSIVE: Final = "alpha.jobset.sigs.k8s.io/exclusive-topology"


def warn_about_unsupported(draft: Draft) -> bool:
    """Emit one Warning that names the fields, before the first status is written and never again."""
    if "restarts" in draft.jobset.status:
        return False
    fields = list(unsupported_fields(draft.jobset))
    if fields:
        draft.warn("UnsupportedField", f"not supported by this version and without effect: {', '.join(fields)}")
    return False


def unsupported_fields(jobset: JobSet) -> Iterator[str]:
    """Name what the manifest asks for and does not get."""
    if EXCLUSIVE in (jobset.metadata.get("annotations") or {}):
        yield f"annotation {EXCLUSIVE}"
    for job in jobset.replicated_jobs:
        if EXCLUSIVE in ((job.template.get("metadata") or {}).get("annotations") or {}):
            yield f"annotation {EXCLUSIVE} of {job.name}"
