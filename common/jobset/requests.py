"""
Read the annotations with which a person asks for a restart of the group, bounds its barriers, or fences its nodes.

These are annotations because the spec is immutable and `kubectl annotate` needs no tool of ours. docs/adr/0039
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from inplace.common.bare.record import record
from inplace.common.jobset.settings import BARRIER, BARRIER_S, FENCE_AFTER, RECREATE_JOBS, SAVE_S_MAX
from inplace.common.protocol.errors import RemoteProtocolError
from inplace.common.wire import names as wire

ID_CHARS_MAX: Final = 63
_ID: Final = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.:+]*[A-Za-z0-9])?")  # a number, a time, a name, a UUID
_SAVE: Final = ",save="  # no id has these characters


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


def deadline_of(annotations: Mapping[str, Any]) -> BarrierDeadline | None:
    """Return the deadline of the barriers; None for none."""
    given = BARRIER.read_or_default(annotations)
    seconds = given.get("deadline", BARRIER_S)
    return BarrierDeadline(seconds, given.get("action") == RECREATE_JOBS) if seconds else None


def fence_after_s(annotations: Mapping[str, Any]) -> int | None:
    """Return after how many seconds without the API server an agent ends its worker; None for never."""
    return FENCE_AFTER.read_or_default(annotations).get("seconds")
