"""Find container ports that the headless Service has no room for."""

from __future__ import annotations

from collections.abc import Iterator

from inplace.controller.spec.form import PORTS_MAX
from inplace.controller.spec.jobset import JobSet
from inplace.controller.spec.service import container_ports


def bad_ports(jobset: JobSet) -> Iterator[str]:
    """Yield that there are too many, in whichever replicatedJobs they are."""
    if len(container_ports(jobset)) > PORTS_MAX:
        yield (
            f"spec.replicatedJobs: expected at most {PORTS_MAX} container ports of different number or protocol, saw "
            "more: the headless Service has the first of them; names resolve without ports; remove some in a new jobset"
        )
