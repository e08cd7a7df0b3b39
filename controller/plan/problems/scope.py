"""Find reasons why the annotation that divides a JobSet into scopes has no effect."""

from __future__ import annotations

from collections.abc import Iterator

from inplace.common.wire import names as wire
from inplace.controller.spec.jobset import JobSet
from inplace.controller.spec.scopes import BY_JOBSET, DIVIDING


def bad_scope(jobset: JobSet) -> Iterator[str]:
    """Yield an unknown word, one without meaning here, and one that came too late; before the first pass none has."""
    wanted, where = jobset.wanted_scope, f"metadata.annotations[{wire.RESTART_SCOPE}]"
    if wanted not in (BY_JOBSET, *DIVIDING):
        expected = ", ".join((BY_JOBSET, *DIVIDING))
        yield f"{where}: expected one of {expected}, saw {wanted[:63]!r}; the jobset restarts as {jobset.restart_scope}"
    elif wanted != BY_JOBSET and not jobset.is_in_place:
        yield f"{where}: expected restartStrategy {wire.IN_PLACE_RESTART}, saw another: it has no effect; remove it"
    elif wanted != jobset.restart_scope and "restarts" in jobset.status:
        yield (
            f"{where}: expected {jobset.restart_scope}, with which the jobset began, saw {wanted}: it has no effect; "
            "create the jobset anew"
        )
