"""
The field `saving` of a scope: its workers are asked to save before a restart that a person wanted.

It is written when the request is taken, so that agents can read it, and so that another controller keeps the deadline.
When the epoch is deprecated it means nothing any more, and the next request overwrites it. docs/adr/0069
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final

from inplace.common.bare.record import record
from inplace.common.jobset.causes import unix_time
from inplace.common.wire import names as wire

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
