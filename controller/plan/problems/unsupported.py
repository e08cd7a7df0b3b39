"""Find fields of upstream's API that the CRD stores and this controller does not act on."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from inplace.controller.spec.jobset import JobSet

UNSUPPORTED: Final[Mapping[str, str]] = {
    "scheduling": (
        "this controller makes no Workload and no PodGroup (KEP-969), so the pods are scheduled one by one; remove it "
        "while the jobset is suspended, and name a PodGroup in schedulingGroup of each pod template instead"
    ),
}
"""A field of the spec, and what happens instead. Each is stored, so that no client loses it by writing it back."""


def unsupported_fields(jobset: JobSet) -> Iterator[str]:
    """Yield each of these fields that is set; an empty object counts, as it does upstream."""
    spec = jobset.raw.get("spec") or {}
    for name, meanwhile in UNSUPPORTED.items():
        if spec.get(name) is not None:
            yield f"spec.{name}: expected nothing here: {meanwhile}"
