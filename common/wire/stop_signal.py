"""Read the name of a signal as Kubernetes and images have it: SIGTERM, TERM, 15, SIGRTMIN+3, SIGRTMAX-2."""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]

from inplace.common.bare.typed import Final

NAMES: Final[dict[str, int]] = {
    name: number for name, number in vars(_signal).items() if name.startswith("SIG") and name[3:].isalnum()
}
TEXT_CHARACTERS_MAX: Final = 16
NOT_TAKEN: Final = frozenset((_signal.SIGKILL, _signal.SIGSTOP, _signal.SIGCHLD))  # no parent can pass these on


def signal_number(text: str) -> int:
    """Return a signal's number; 0 for a text that names none which a worker's parent can take."""
    if len(text) > TEXT_CHARACTERS_MAX or not text.isascii():
        return 0
    name = text.upper()
    if name.isdigit():
        number = int(name)
    else:
        base, sign, offset = _split(name if name.startswith("SIG") else f"SIG{name}")
        number = NAMES.get(base, 0)
        if sign:
            if base not in ("SIGRTMIN", "SIGRTMAX") or not offset.isdigit():
                return 0
            number += int(offset) if sign == "+" else -int(offset)
    return number if number in _signal.valid_signals() and number not in NOT_TAKEN else 0


def signal_name(number: int) -> str:
    """Return a signal's name for a log line."""
    for name, known in NAMES.items():
        if known == number and name not in ("SIGCLD", "SIGPOLL", "SIGIOT"):
            return name
    return f"SIGRTMIN+{number - _signal.SIGRTMIN}" if number > _signal.SIGRTMIN else f"signal {number}"


def _split(name: str) -> tuple[str, str, str]:
    for sign in "+-":
        base, found, offset = name.partition(sign)
        if found:
            return base, found, offset
    return name, "", ""
