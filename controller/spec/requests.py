"""
Read the annotations with which a person asks for a restart of the group, or sets a deadline for its barriers.

These are annotations because the spec is immutable and `kubectl annotate` needs no tool of ours. docs/adr/0039
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from inplace.common import wire
from inplace.common.epoch.errors import RemoteProtocolError

ID_CHARS_MAX: Final = 63
_ID: Final = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.:+]*[A-Za-z0-9])?")  # a number, a time, a name, a UUID
DEADLINE_S_MAX: Final = 7 * 24 * 3600
EVENT: Final = "Event"
RECREATE_JOBS: Final = "RecreateJobs"


@dataclass(frozen=True, slots=True)
class BarrierDeadline:
    """How long a barrier may wait.

    Args:
        recreates: the Jobs of those that are missing are recreated after it.
    """

    seconds: int
    recreates: bool = False


def read_request(annotations: Mapping[str, Any]) -> str | None:
    """Return the id of the restart that is asked for; None for none.

    Raises:
        RemoteProtocolError: it is no id.
    """
    text = annotations.get(wire.RESTART_REQUESTED)
    if text is None:
        return None
    if len(text) > ID_CHARS_MAX or _ID.fullmatch(text) is None:
        raise RemoteProtocolError(
            f"metadata.annotations[{wire.RESTART_REQUESTED}]: expected an id of 1 to {ID_CHARS_MAX} letters, digits "
            f"and '-', '_', '.', ':', '+', such as a time, saw {text[:80]!r}; nothing is restarted; set another one"
        )
    return str(text)


def read_deadline(annotations: Mapping[str, Any]) -> BarrierDeadline | None:
    """Return the deadline of the barriers; None for none.

    Raises:
        RemoteProtocolError: it cannot be read.
    """
    text, action = annotations.get(wire.BARRIER_DEADLINE), annotations.get(wire.BARRIER_DEADLINE_ACTION, EVENT)
    where = "metadata.annotations"
    if text is None:
        if wire.BARRIER_DEADLINE_ACTION in annotations:
            raise RemoteProtocolError(
                f"{where}[{wire.BARRIER_DEADLINE_ACTION}]: expected {wire.BARRIER_DEADLINE} beside it, saw none; it "
                "has no effect; set both, or remove it"
            )
        return None
    if action not in (EVENT, RECREATE_JOBS):
        raise RemoteProtocolError(
            f"{where}[{wire.BARRIER_DEADLINE_ACTION}]: expected {EVENT} or {RECREATE_JOBS}, saw {str(action)[:40]!r}; "
            "barriers have no deadline; correct it"
        )
    try:
        seconds = wire.parse_int32(text, f"{where}[{wire.BARRIER_DEADLINE}]", least=1, most=DEADLINE_S_MAX)
    except RemoteProtocolError as error:
        raise RemoteProtocolError(f"{error}; barriers have no deadline; correct it") from error
    return BarrierDeadline(seconds, action == RECREATE_JOBS)
