"""
Find the JobSets that use a Service or a claim by its name: they wait for it, and create their own when it goes.

Neither label nor owner would do: an object that was made by hand has neither, and two JobSets may share a subdomain.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from inplace.common.jobset.claim import PersistentVolumeClaim
from inplace.common.jobset.jobset import JobSet
from inplace.common.jobset.service import Service

_Name = tuple[type, str, str]  # of what kind, in which namespace, under what name


@dataclass(slots=True)
class NameReferences:
    """An index of JobSets, by UID; a spec's names never change while it lives, but are cheap to note again."""

    _users: dict[_Name, set[str]] = field(default_factory=dict)
    _names: dict[str, frozenset[_Name]] = field(default_factory=dict)

    def note(self, jobset: JobSet) -> None:
        """Take in a version of a JobSet."""
        names: list[_Name] = [
            (PersistentVolumeClaim, jobset.namespace, jobset.claim_name(claim)) for claim in jobset.claims
        ]
        if jobset.network.dns_hostnames:
            names.append((Service, jobset.namespace, jobset.subdomain))
        if frozenset(names) == self._names.get(jobset.uid):
            return
        self.forget(jobset.uid)
        self._names[jobset.uid] = frozenset(names)
        for name in names:
            self._users.setdefault(name, set()).add(jobset.uid)

    def forget(self, uid: str) -> None:
        """Drop a JobSet; one that is unknown is fine."""
        for name in self._names.pop(uid, ()):
            users = self._users[name]
            users.discard(uid)
            if not users:
                del self._users[name]

    def of(self, used: Service | PersistentVolumeClaim) -> frozenset[str]:
        """Return the UIDs of the JobSets that use an object of this name."""
        return frozenset(self._users.get((type(used), used.metadata.namespace, used.metadata.name), ()))
