"""
The scopes of a JobSet: the Pods that restart together in place are all, or those of one groupName or replicatedJob.

Each scope is one instance of the protocol with its own S and D, independent of the others. If the JobSet is one scope,
its name is "" and its epochs are fields of the status, as upstream has them. Otherwise status.restartScope says how it
is divided, and status.scopedEpochs has an entry for each scope. docs/adr/0023.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

from inplace.common.bare.record import record
from inplace.common.jobset.causes import unix_time
from inplace.common.jobset.goodput import Goodput, goodput_of
from inplace.common.protocol.members import Members
from inplace.common.wire import names as wire
from inplace.common.wire.members import read_members

WHOLE: Final = ""  # the scope's name where the JobSet is one scope
BY_JOBSET: Final = "JobSet"  # the annotation's word for that
BY_GROUP: Final = "Group"
BY_REPLICATED_JOB: Final = "ReplicatedJob"
DIVIDING: Final = (BY_GROUP, BY_REPLICATED_JOB)


@dataclass(frozen=True, slots=True)
class Scope:
    """One scope and what the status says of it.

    Args:
        members: names of its replicatedJobs.
        synced: S.
        deprecated: D.
        exempt: how many epochs did not use up maxRestarts by themselves; see controller/plan/budget.py.
        last_exempt: the newest of them; 0 for none.
        is_contradictory: the status has a D beyond its S, which reads as S = D (common/wire/names.py).
        goodput: what its restarts cost; None where no Pod ever told its steps.
        saving: the newest restart before which its workers were asked to save; None for none.
        members_text: who runs in S; "" before the first epoch of a scope with spares, None in a group without that
            tells of no steps.
    """

    name: str
    members: frozenset[str]
    synced: int = 0
    deprecated: int = 0
    exempt: int = 0
    last_exempt: int = 0
    is_contradictory: bool = False
    goodput: Goodput | None = None
    saving: Saving | None = None
    members_text: str | None = None

    @property
    def has_spares(self) -> bool:
        """Say whether its barrier lifts for some of its slots (docs/adr/0107)."""
        if self.members_text is None or self.name == WHOLE:
            return False
        return (ranks := self.ranks) is None or not ranks.everyone

    @property
    def ranks(self) -> Members | None:
        """Return who runs in S; None where nobody knows."""
        return read_members(self.members_text)

    @property
    def is_running(self) -> bool:
        """Say whether the status says that an epoch runs."""
        return self.synced > self.deprecated

    @property
    def saving_now(self) -> Saving | None:
        """Return the restart that waits for the workers of the epoch which runs; None for none."""
        if self.is_running and self.saving is not None and self.saving.epoch == self.synced:
            return self.saving
        return None

    @property
    def is_restarting(self) -> bool:
        """Say whether the status says that the epoch which ran is over."""
        return 0 < self.synced <= self.deprecated

    def restarts_at(self, epoch: int) -> int:
        """Return how many restarts in place were counted when `epoch` was reached."""
        return max(0, epoch - 1 - (self.exempt - (self.last_exempt > epoch)))


def read_scopes(members: Iterable[tuple[str, str]], status: Mapping[str, Any], exempt_default: int) -> dict[str, Scope]:
    """Return the scopes by name.

    Args:
        members: (scope, replicatedJob) for each replicatedJob that restarts in place.
        status: of the JobSet.
        exempt_default: how many epochs are exempt where the status does not say.

    Raises:
        RemoteProtocolError: a field is not an int32.
    """
    names: dict[str, set[str]] = {} if status.get(wire.RESTART_SCOPE_FIELD) else {WHOLE: set()}
    for scope, member in members:
        names.setdefault(scope, set()).add(member)
    if WHOLE in names:
        return {WHOLE: _read(WHOLE, names[WHOLE], status, exempt_default)}
    entries = {entry.get("name"): entry for entry in status.get(wire.SCOPED_EPOCHS) or ()}
    return {name: _read(name, some, entries.get(name) or {}, 0) for name, some in sorted(names.items())}


def write_scope(status: dict[str, Any], scope: Scope, fields: Mapping[str, Any]) -> None:
    """Set fields of one scope in a status that is being made."""
    if scope.name == WHOLE:
        status |= dict(fields)
        return
    entries = {entry["name"]: entry for entry in status.get(wire.SCOPED_EPOCHS) or ()}
    entries[scope.name] = dict(entries.get(scope.name) or {"name": scope.name}) | dict(fields)
    status[wire.SCOPED_EPOCHS] = list(entries.values())


def fields_of_scope(status: Mapping[str, Any], scope: Scope) -> Mapping[str, Any]:
    """Return what `write_scope` has written: the status itself, or the scope's entry."""
    if scope.name == WHOLE:
        return status
    entries: Iterable[Mapping[str, Any]] = status.get(wire.SCOPED_EPOCHS) or ()
    return next((entry for entry in entries if entry.get("name") == scope.name), {})


def fields_of_epochs(scope: Scope, synced: int, deprecated: int) -> dict[str, int]:
    """Return the fields that say S and D; upstream's agents know no scopes, so only the whole JobSet has theirs."""
    if scope.name == WHOLE:
        return wire.status_of_epochs(synced, deprecated)
    return {wire.SYNCED_EPOCH: synced, wire.DEPRECATED_EPOCH: deprecated}


def first_scopes(names: Iterable[str], with_spares: Iterable[str] = ()) -> list[dict[str, Any]]:
    """Return status.scopedEpochs before anything ran."""
    spared = set(with_spares)
    return [
        {"name": name, wire.SYNCED_EPOCH: 0, wire.DEPRECATED_EPOCH: 0}
        | ({wire.MEMBERS_FIELD: ""} if name in spared else {})
        for name in sorted(set(names))
    ]


def _read(name: str, members: set[str], fields: Mapping[str, Any], exempt_default: int) -> Scope:
    synced, deprecated = wire.epochs_of_status(fields)
    exempt = fields.get(wire.EXEMPT_EPOCHS)
    return Scope(
        name,
        frozenset(members),
        synced,
        deprecated,
        exempt=exempt_default if exempt is None else exempt,
        last_exempt=fields.get(wire.LAST_EXEMPT_EPOCH) or 0,
        is_contradictory=(synced, deprecated) != wire.epochs_as_written(fields),
        goodput=goodput_of(fields),
        saving=saving_of(fields),
        members_text=fields.get(wire.MEMBERS_FIELD),
    )


# The field `saving` of a scope: its workers are asked to save before a restart that a person wanted.
#
# It is written when the request is taken, so that agents can read it, and so that another controller keeps the
# deadline. When the epoch is deprecated it means nothing any more, and the next request overwrites it. docs/adr/0069
CRD_CURE: Final = "kubectl apply --server-side --force-conflicts -k deploy/crd"
"""What brings the fields that an older definition drops."""


@record
class Saving:
    """A restart that waits for its workers.

    Args:
        epoch: whose workers save.
        request: the id of the request.
        until_s: when the restart begins at the latest, Unix time by a controller's clock; 0 if that is unreadable.
    """

    epoch: int
    request: str
    until_s: float

    def fields(self) -> dict[str, Any]:
        """Return the fields of the scope."""
        until = datetime.fromtimestamp(self.until_s, UTC).isoformat(timespec="microseconds")
        return {wire.SAVING: {"epoch": self.epoch, "request": self.request, "until": until}}


def saving_of(fields: Mapping[str, Any]) -> Saving | None:
    """Read the field of a scope; None when there is none."""
    found = fields.get(wire.SAVING)
    if not isinstance(found, Mapping):
        return None
    epoch = wire.saving_epoch(fields)
    if epoch is None:
        return None
    return Saving(epoch, str(found.get("request") or ""), unix_time(found.get("until")) or 0.0)
