"""
The one grammar of annotations that programs write for each other: "v1", then parts ",name=value" in a given order.

    v1,epoch=3,code=137,at=1790000000123

Reading is strict: any other order, name, or spelling of a value makes the whole text invalid. So the admission policies
can say the same with one regular expression, and what is read is written in one way only. `common.wire.phases` alone is
lenient: it passes over names that it does not know. Pure, and on the agent's start path.
"""

from __future__ import annotations

from inplace.common.bare.typed import TYPE_CHECKING, Any, Callable, Final, Mapping, Sequence
from inplace.common.protocol.bounds import decimal

if TYPE_CHECKING:
    Reader = Callable[[str], object]  # None: this is no such value

VERSION: Final = "v1"
SEEN_CHARS_MAX: Final = 40  # of a bad text in a message
_UNIX_DIGITS: Final = 13
_UNIX_MS_MAX: Final = 10**_UNIX_DIGITS - 1  # in the year 2286


def read_parts(
    text: str, readers: Mapping[str, Reader], orders: Sequence[tuple[str, ...]], bytes_max: int
) -> dict[str, Any] | None:
    """Return the values by name; None for a text that does not follow the grammar.

    Args:
        text: of the annotation.
        readers: for each name.
        orders: which names may stand there, in order.
        bytes_max: a longer text is not looked at.
    """
    version, *parts = text.split(",") if len(text) <= bytes_max else [""]
    given = [part.partition("=") for part in parts]
    if version != VERSION or tuple(name for name, _, _ in given) not in orders:
        return None
    values = {name: readers[name](value) for name, _, value in given}
    return None if None in values.values() else values


def whole(least: int, most: int) -> Reader:
    """Return the reader of a decimal number without leading zeros."""

    def read(text: str) -> int | None:
        number = decimal(text, most)
        return number if number is not None and number >= least and str(number) == text else None

    return read


def unix_s(text: str) -> float | None:
    """Read a moment: milliseconds since the Unix epoch in 13 digits; return it in seconds."""
    milliseconds = decimal(text, _UNIX_MS_MAX) if len(text) == _UNIX_DIGITS else None
    return None if milliseconds is None else milliseconds / 1000


def unix_text(at_s: float) -> str:
    """Write a moment; one beyond the 13 digits is cut."""
    return f"{min(max(round(at_s * 1000), 0), _UNIX_MS_MAX):013d}"


def parts_of(text: str, lone: str) -> dict[str, str]:
    """Read what a person wrote: parts "name=value" with commas between them, in any order.

    Args:
        text: spaces around a part are nothing.
        lone: the name of a value that stands alone; "" where none may.

    Raises:
        ValueError: a part is no "name=value", or a name stands there twice.
    """
    if lone and "=" not in text:
        text = f"{lone}={text.strip()}"
    parts = [part.strip().partition("=") for part in text.split(",")]
    found = {name: value for name, _, value in parts if name and value}
    if len(found) != len(parts):
        raise ValueError(f"expected name=value with commas between, each name once, saw {text[:SEEN_CHARS_MAX]!r}")
    return found
