"""
The names of a restart's phases, and the annotation that carries their durations.

A Pod's announcement carries the phases that ended since its last one. So the controller can say where the time of a
group restart went without scraping 5,000 Pods. Source of the encoding: docs/adr/0011-phases.md.

    text  = "v1" *( "," name "=" milliseconds )     e.g. v1,kubelet=1203,view=41,announce=12,barrier=3021,lift=3074
    name  = one of `RestartPhase`, each at most once, in any order
    milliseconds = 1 to 7 decimal digits; 9999999 (2 h 46 min) also stands for anything longer

Reading is strict: another version, an unknown or repeated name, or another spelling of a number makes the whole text
invalid. This module is pure, and on the agent's start path.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum

from inplace.common.epoch.errors import RemoteProtocolError
from inplace.common.typed import Final


class RestartPhase(Enum):
    """A stretch of a Pod's restart; not to be confused with the state of the protocol's machine.

    Sidecar mode has the first five, supervisor mode all but KUBELET after its first start. LIFT and DOWN are totals.
    """

    KUBELET = "kubelet"  # the last process of this agent ended -> this process was started
    VIEW = "view"  # process start -> the view from which the epoch was chosen
    ANNOUNCE = "announce"  # the epoch was chosen -> the server took the announcement
    BARRIER = "barrier"  # announcement taken -> barrier lifted
    LIFT = "lift"  # process start -> barrier lifted for the first time
    DEATH = "death"  # worker's death, or the order to stop it -> the server took the next announcement
    STOP = "stop"  # worker's death, or the order to stop it -> no process of its tree is left
    START = "start"  # the worker may start -> its process runs
    DOWN = "down"  # worker's death, or the order to stop it -> the next worker's process runs


VERSION: Final = "v1"
MILLISECONDS_MAX: Final = 9_999_999  # far beyond the last bucket of every histogram; bounds the text
TEXT_BYTES_MAX: Final = len(VERSION) + sum(len(f",{phase.value}=9999999") for phase in RestartPhase)  # 131
_NAMES: Final = {phase.value: phase for phase in RestartPhase}


def phases_text(seconds: Mapping[RestartPhase, float]) -> str:
    """Return the annotation's value for the durations of phases, in seconds."""
    parts = [f",{phase.value}={_milliseconds(duration_s)}" for phase, duration_s in seconds.items()]
    return VERSION + "".join(parts)


def parse_phases(text: str) -> dict[RestartPhase, float]:
    """Return the durations, in seconds, that an annotation's value carries.

    Raises:
        RemoteProtocolError: it does not follow the grammar above (its writer is at fault).
    """
    version, *parts = text.split(",") if len(text) <= TEXT_BYTES_MAX else [""]
    seconds: dict[RestartPhase, float] = {}
    for part in parts:
        name, _, digits = part.partition("=")
        phase = _NAMES.get(name)
        if phase is None or phase in seconds or not (digits.isascii() and digits.isdigit() and len(digits) <= 7):
            break
        seconds[phase] = int(digits) / 1000
    if version != VERSION or len(seconds) != len(parts):
        raise RemoteProtocolError(
            f"phases: expected {VERSION!r} and parts ',name=milliseconds' of known phases, saw {text[:80]!r}"
        )
    return seconds


def _milliseconds(seconds: float) -> int:
    """Round, into the range that the text can hold."""
    return round(min(max(seconds, 0.0), MILLISECONDS_MAX / 1000) * 1000)
