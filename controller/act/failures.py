"""Why an action failed, where the server's answer alone does not say it."""

from __future__ import annotations

from inplace.common.jobset.jobset import JobSet
from inplace.common.kube.errors import ApiError


class ForeignObjectError(Exception):
    """Somebody else's object has a name that we need; only its owner can make room."""

    def __init__(self, jobset: JobSet, kind: str, name: str) -> None:
        super().__init__(
            f"{kind} {name} exists and is not of this jobset (UID {jobset.uid}): expected a free name; "
            f"delete that {kind}, or rename the jobset; it is tried again with growing pauses"
        )


class ResourcesNotPropagatedError(Exception):
    """A Job cannot be resumed with the resources that its JobSet's template has by now.

    Attributes:
        cause: the server's answer.
    """

    def __init__(self, job: str, cause: ApiError) -> None:
        super().__init__(
            f"job {job}: expected the server to take the resources of the jobset's template, saw {cause}; the job "
            "stays suspended, and it is tried again with growing pauses. Ensure MutablePodResourcesForSuspendedJobs is "
            "enabled on the API server."
        )
        self.cause = cause.with_traceback(None)


class ActionsFailedError(Exception):
    """Some actions failed; the message says how many and the first error."""
