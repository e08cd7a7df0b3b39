"""
Read the annotations with which a person asks for a restart of the group, or sets a deadline for its barriers.

These are annotations because the spec is immutable and `kubectl annotate` needs no tool of ours. docs/adr/0039
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from inplace.common.bare.record import record
from inplace.common.protocol.errors import RemoteProtocolError
from inplace.common.protocol.lease import LENGTH_S_MAX, LENGTH_S_MIN
from inplace.common.wire import names as wire

ID_CHARS_MAX: Final = 63
_ID: Final = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.:+]*[A-Za-z0-9])?")  # a number, a time, a name, a UUID
_SAVE: Final = ",save="  # no id has these characters
SAVE_S_MAX: Final = 3600  # a worker that needs longer does not save for a restart, it hangs
DEADLINE_S_MAX: Final = 7 * 24 * 3600
EVENT: Final = "Event"
RECREATE_JOBS: Final = "RecreateJobs"


@record
class BarrierDeadline:
    """How long a barrier may wait.

    Args:
        recreates: the Jobs of those that are missing are recreated after it.
    """

    seconds: int
    recreates: bool = False


@record
class RestartRequest:
    """A restart that a person asks for.

    Args:
        id: each is carried out once.
        save_s: the workers have so long to save before it; 0: it begins at once.
    """

    id: str
    save_s: int = 0

    def __str__(self) -> str:
        """Return the annotation's value."""
        return f"{self.id}{_SAVE}{self.save_s}" if self.save_s else self.id


def read_request(annotations: Mapping[str, Any]) -> RestartRequest | None:
    """Return the restart that is asked for; None for none.

    Raises:
        RemoteProtocolError: it is no id, or no time to save.
    """
    text = annotations.get(wire.RESTART_REQUESTED)
    if text is None:
        return None
    where = f"metadata.annotations[{wire.RESTART_REQUESTED}]"
    name, save, seconds = str(text).partition(_SAVE)
    if len(name) > ID_CHARS_MAX or _ID.fullmatch(name) is None:
        raise RemoteProtocolError(
            f"{where}: expected an id of 1 to {ID_CHARS_MAX} letters, digits "
            f"and '-', '_', '.', ':', '+', such as a time, saw {text[:80]!r}; nothing is restarted; set another one"
        )
    if not save:
        return RestartRequest(name)
    try:
        return RestartRequest(name, wire.parse_int32(seconds, f"{where}: save", least=1, most=SAVE_S_MAX))
    except RemoteProtocolError as error:
        raise RemoteProtocolError(f"{error}; nothing is restarted; set another one") from error


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
            f"{where}[{wire.BARRIER_DEADLINE_ACTION}]: expected {EVENT} or {RECREATE_JOBS} (the jobs of the missing "
            f"pods, and no others), saw {str(action)[:40]!r}; barriers have no deadline; correct it"
        )
    try:
        seconds = wire.parse_int32(text, f"{where}[{wire.BARRIER_DEADLINE}]", least=1, most=DEADLINE_S_MAX)
    except RemoteProtocolError as error:
        raise RemoteProtocolError(f"{error}; barriers have no deadline; correct it") from error
    return BarrierDeadline(seconds, action == RECREATE_JOBS)


def read_fence(annotations: Mapping[str, Any]) -> int | None:
    """Return after how many seconds without the API server an agent ends its worker; None for never.

    Raises:
        RemoteProtocolError: it cannot be read.
    """
    text = annotations.get(wire.FENCE_AFTER)
    if text is None:
        return None
    where = f"metadata.annotations[{wire.FENCE_AFTER}]"
    try:
        return wire.parse_int32(text, where, least=LENGTH_S_MIN, most=LENGTH_S_MAX)
    except RemoteProtocolError as error:
        raise RemoteProtocolError(f"{error}; a dead node is given up after 300 s, as without it; correct it") from error
