"""
The annotation that a Pod's announcement carries: the phases of its restart, its moment, and its worker's last progress.

It says what ended since the Pod's last announcement. So the controller can say where the time of a group restart went,
and who was silent first, without scraping 5,000 Pods. Source of the encoding: docs/adr/0011-phases.md.

    text   = "v1" *( "," name "=" number )     e.g. v1,kubelet=1203,view=41,at=4512078
    name   = 1 to 16 small letters, each name at most once, in any order, at most 16 of them
    number = 1 to 7 decimal digits
    A name of `RestartPhase` has milliseconds; 9999999 (2 h 46 min) also stands for anything longer.
    at     = when the epoch was chosen, by the node's clock: milliseconds since the Unix epoch, modulo 10^7
    code   = 0 to 255, or 128 + n after signal n: with which a worker of this Pod ended by itself before the restart
    quiet, step, high, made, pace, work, of: common/wire/last_progress.py

Reading is strict in the form, but passes over names that it does not know: they are a newer agent's. deploy/admission
has the same form. The writer leaves out phases that do not fit TEXT_BYTES_MAX or PARTS_MAX. This module is pure, and on
the agent's start path.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum

from inplace.common.bare.typed import Final
from inplace.common.protocol.bounds import CODE_MAX, decimal
from inplace.common.protocol.errors import RemoteProtocolError
from inplace.common.wire.parts import VERSION


class RestartPhase(Enum):
    """A stretch of a Pod's restart; not to be confused with the state of the protocol's machine.

    Sidecar mode has the first five, supervisor mode all but KUBELET after its first start. LIFT and DOWN are totals.
    """

    KUBELET = "kubelet"  # the last process of this agent ended -> this process was started
    VIEW = "view"  # process start -> the view from which the epoch was chosen
    ANNOUNCE = "announce"  # the epoch was chosen -> the server took the announcement
    BARRIER = "barrier"  # announcement taken -> barrier lifted
    LIFT = "lift"  # process start -> barrier lifted for the first time
    DEATH = "death"  # worker's death, or the order to stop it -> the next announcement leaves
    STOP = "stop"  # worker's death, or the order to stop it -> no process of its tree is left
    START = "start"  # the worker may start -> its process runs
    DOWN = "down"  # worker's death, or the order to stop it -> the next worker's process runs


MILLISECONDS_MAX: Final = 9_999_999  # far beyond the last bucket of every histogram; bounds the text
TEXT_BYTES_MAX: Final = 160  # 5,000 Pods at once; and a value of a Pod that every watch of it carries
NAME_CHARACTERS_MAX: Final = 16
PARTS_MAX: Final = 16  # as the policy has it
DIGITS_MAX: Final = 7
AT: Final = "at"
CODE: Final = "code"
_AT_MS: Final = 10**DIGITS_MAX
_NUMBER_MAX: Final = _AT_MS - 1
_NAMES: Final = {phase.value: phase for phase in RestartPhase}
_KNOWN: Final = frozenset({*_NAMES, AT, CODE, "quiet", "step", "high", "made", "pace", "work", "of"})


def phases_text(
    seconds: Mapping[RestartPhase, float], at_s: float | None = None, told: str = "", *, code: int | None = None
) -> str:
    """Return the annotation's value.

    Args:
        seconds: durations of phases; those that do not fit beside the rest are left out.
        at_s: Unix time of the announcement.
        told: the worker's last progress, as `common.wire.last_progress` writes it.
        code: with which a worker ended by itself; None if none did.
    """
    end = (
        ("" if at_s is None else f",{AT}={round(at_s * 1000) % _AT_MS}")
        + ("" if code is None else f",{CODE}={code}")
        + told
    )
    text, room = VERSION, PARTS_MAX - end.count(",")
    for phase, duration_s in seconds.items():
        part = f",{phase.value}={_milliseconds(duration_s)}"
        if room > 0 and len(text) + len(part) + len(end) <= TEXT_BYTES_MAX:
            text += part
            room -= 1
    return text + end


def parse_phases(text: str) -> dict[RestartPhase, float]:
    """Return the durations, in seconds, that an annotation's value carries.

    Raises:
        RemoteProtocolError: it does not follow the grammar above (its writer is at fault).
    """
    return {_NAMES[name]: number / 1000 for name, number in parse_numbers(text).items() if name in _NAMES}


def exit_code_of(text: str) -> int | None:
    """Return the code with which a worker ended by itself; None if none did, and for garbage."""
    try:
        code = parse_numbers(text).get(CODE) if CODE in text else None
    except RemoteProtocolError:
        return None
    return code if code is None or code <= CODE_MAX else None


def parse_numbers(text: str) -> dict[str, int]:
    """Return all numbers that an annotation's value carries, by name.

    Raises:
        RemoteProtocolError: it does not follow the grammar above (its writer is at fault).
    """
    version, *parts = text.split(",") if len(text) <= TEXT_BYTES_MAX else [""]
    numbers: dict[str, int] = {}
    for part in parts:
        name, _, digits = part.partition("=")
        number = decimal(digits, _NUMBER_MAX)
        if name in numbers or number is None or not _is_name(name):
            break
        numbers[name] = number
    if version != VERSION or len(numbers) != len(parts) or len(parts) > PARTS_MAX:
        raise RemoteProtocolError(f"phases: expected {VERSION!r} and parts ',name=number', saw {text[:80]!r}")
    return numbers


def moment_of(numbers: Mapping[str, int], near_s: float) -> float | None:
    """Return the Unix time that `at` says, taken for the one that is nearest to `near_s`; None if there is none."""
    if AT not in numbers:
        return None
    half_ms = _AT_MS // 2
    return near_s + ((numbers[AT] - round(near_s * 1000) + half_ms) % _AT_MS - half_ms) / 1000


def _is_name(name: str) -> bool:
    if name in _KNOWN:  # nearly all are
        return True
    return name.isascii() and name.isalpha() and name.islower() and len(name) <= NAME_CHARACTERS_MAX


def _milliseconds(seconds: float) -> int:
    """Round, into the range that the text can hold."""
    return round(min(max(seconds, 0.0), MILLISECONDS_MAX / 1000) * 1000)
