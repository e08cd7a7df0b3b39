"""Settings of a JobSet that its Pods carry as annotations, for their agents to read (docs/adr/0084)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from inplace.common.jobset.requests import SAVE_S_MAX
from inplace.common.protocol.errors import RemoteProtocolError
from inplace.common.wire import names as wire

CLEAN_AFTER_MAX: Final = 1000  # as the agent's, see agent/settings/config.py
START_WINDOW_S_MAX: Final = 300  # as the agent's, see agent/settings/herd.py
_NUMBERS: Final = {
    wire.SAVE_WITHIN: SAVE_S_MAX,
    wire.CLEAN_AFTER: CLEAN_AFTER_MAX,
    wire.START_WINDOW: START_WINDOW_S_MAX,
}


def read_settings(annotations: Mapping[str, Any]) -> tuple[dict[str, str], list[str]]:
    """Return the settings as the Pods get them, and a sentence for each value that no agent could use."""
    carried, problems = dict[str, str](), list[str]()
    for name in (wire.RESTART_DEPTH, *_NUMBERS):
        text, where = str(annotations.get(name) or ""), f"metadata.annotations[{name}]"
        try:
            if text and name in _NUMBERS:
                wire.parse_int32(text, where, least=0, most=_NUMBERS[name])
            elif text not in ("", wire.DEPTH_CONTAINERS, wire.DEPTH_PROCESS):
                raise RemoteProtocolError(f"{where}: expected containers or process, saw {text[:40]!r}")
        except RemoteProtocolError as error:
            problems.append(f"{error}; the Pods do not get it; correct it")
        else:
            carried |= {name: text} if text else {}
    return carried, problems
