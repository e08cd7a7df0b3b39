"""Find reasons why the annotations that ask for a restart or a deadline have no effect."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from inplace.common import wire
from inplace.common.epoch.errors import RemoteProtocolError
from inplace.controller.spec.jobset import JobSet
from inplace.controller.spec.requests import read_deadline, read_request

ASKING: Final = (wire.RESTART_REQUESTED, wire.BARRIER_DEADLINE, wire.BARRIER_DEADLINE_ACTION)


def bad_requests(jobset: JobSet) -> Iterator[str]:
    """Yield each value that cannot be read, and those that mean nothing without restarts in place."""
    for read in (read_request, read_deadline):
        try:
            read(jobset.annotations)
        except RemoteProtocolError as error:
            yield str(error)
    if jobset.is_in_place:
        return
    for name in ASKING:
        if name in jobset.annotations:
            yield (
                f"metadata.annotations[{name}]: expected restartStrategy {wire.IN_PLACE_RESTART}, saw another: it has "
                "no effect; remove it"
            )
