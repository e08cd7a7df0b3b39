"""
Watch Workloads and PodGroups, from the first JobSet on that asks for a gang; until then nothing is asked.

Most servers do not serve them: then the JobSets go on without, and the server is asked again now and then. JobSets that
were waiting for the answer are woken.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from inplace.common.jobset.jobset import JobSet
from inplace.common.jobset.pod_groups import UNKNOWN, SchedulingObject, SchedulingObjects, read_scheduling
from inplace.common.kube.client import KubeClient
from inplace.common.kube.clock import Clock
from inplace.common.kube.informer import Handler, Informer, Log
from inplace.common.kube.resources import POD_GROUPS, SCHEDULING_WORKLOADS, Resource
from inplace.common.wire import names as wire
from inplace.controller.api.served_kinds import ServedKinds
from inplace.controller.tracking.membership import Membership

AGAIN_S: Final = 60.0  # an administrator restarts the API server with the feature gate
KINDS: Final = (SCHEDULING_WORKLOADS, POD_GROUPS)

Make = Callable[[Resource, Handler[SchedulingObject], Callable[[str], None]], Informer[SchedulingObject]]


class SchedulingReader:
    """Says which Workloads and PodGroups a JobSet owns.

    Args:
        make: makes an informer of a kind, with a handler and a listener for how its watches end.
    """

    def __init__(self, client: KubeClient, membership: Membership, make: Make, clock: Clock, log: Log) -> None:
        self._membership = membership
        self._make = make
        self._log = log
        self._answer = UNKNOWN
        self._served = ServedKinds(
            client, KINDS, self._made, self._begin, self._say, self._say_unknown, clock, again_s=AGAIN_S
        )
        self._owned: dict[str, dict[tuple[Resource, str], SchedulingObject]] = {}  # by the JobSet's UID

    def of(self, jobset: JobSet) -> SchedulingObjects:
        """Return what a JobSet owns; the first that asks for a gang starts the watches."""
        if read_scheduling(jobset) is not None:
            self._served.asked.set()
        answer = self._answer
        return SchedulingObjects(answer.is_known, answer.why_none, dict(self._owned.get(jobset.uid, {})))

    @property
    def informers(self) -> Iterable[Informer[SchedulingObject]]:
        """Return those that run."""
        return self._served.informers.values()

    def cache(self, resource: Resource) -> Informer[SchedulingObject] | None:
        """Return the cache of a kind that absorbs our own writes; None while none is watched."""
        return self._served.informers.get(resource)

    async def run(self) -> None:
        """Watch while the server serves both kinds, and ask again while it does not."""
        await self._served.run()

    def _begin(self) -> None:
        self._answer = UNKNOWN
        self._owned.clear()

    def _made(self, resource: Resource, ended: Callable[[str], None]) -> Informer[SchedulingObject]:
        def changed(old: SchedulingObject | None, new: SchedulingObject | None) -> None:
            self._note(resource, old, new)

        return self._make(resource, changed, ended)

    def _say_unknown(self, message: str) -> None:
        self._log.warning("gangs_unknown", message=message, then="it is asked again")

    def _note(self, resource: Resource, old: SchedulingObject | None, new: SchedulingObject | None) -> None:
        """Take in a change; one of the spec, and a deletion, wakes the JobSet."""
        if old is not None and (uid := old.owner_uid) is not None:
            self._owned.get(uid, {}).pop((resource, old.metadata.name), None)
            if not self._owned.get(uid):
                self._owned.pop(uid, None)
        if new is not None and (uid := new.owner_uid) is not None:
            self._owned.setdefault(uid, {})[resource, new.metadata.name] = new
        if old is None or new is None or old.wanted != new.wanted:
            for one in (old, new):
                if one is not None and one.jobset is not None:
                    self._membership.wake((one.metadata.namespace, one.jobset), 0.0)

    def _say(self, why_none: str) -> None:
        """Take in whether the kinds are served, and wake every JobSet that asks for a gang when that changes."""
        answer = SchedulingObjects(is_known=True, why_none=why_none)
        if answer == self._answer:
            return
        self._answer = answer
        if why_none:
            self._log.warning("gangs_unavailable", api=wire.SCHEDULING_API, message=why_none)
        for group in self._membership:
            if read_scheduling(group.jobset) is not None:
                self._membership.wake(group.key, 0.0)
