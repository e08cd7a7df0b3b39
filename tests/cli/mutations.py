"""Objects and texts with something wrong in them: a value of another type, nothing, or bytes that are no JSON."""

from __future__ import annotations

from collections.abc import Iterator
from copy import deepcopy
from random import Random
from typing import Any, Final

DEEP: Final = 1_200  # levels of a text; readers of JSON follow 1,000
NESTED: Any = None
for _ in range(150):  # a manifest may nest 100 deep
    NESTED = [NESTED]
VALUES: Final[tuple[Any, ...]] = (
    *(None, None, None, True, False, 0, 1, -1, 2**31, 2**63, 10**400, 1.5, float("nan"), float("inf")),
    *("", "x", "0", "-1", "null", "\x1b[31m", "\ud800", "٣", "a" * 5_000, "2026-01-01T00:00:00Z", "1,2", "x=1"),
    *([], [None], [[]], [{}], ["x"], [0], {}, {"x": None}, {"x": "y"}, {"": {}}, {"name": None}, {"name": []}, NESTED),
)
Place = tuple[Any, Any]  # a mapping or a list, and the key of one of its parts


def mutated(rng: Random, whole: Any) -> Any:
    """Return an object with something else at one to three places."""
    box = [deepcopy(whole)]
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        holder, key = _place(rng, box)
        match rng.randrange(12):
            case 0 if holder is not box:
                del holder[key]
            case 1:
                holder[key] = [holder[key]]
            case 2:
                holder[key] = {"x": holder[key]}
            case 3 if isinstance(holder, list) and holder is not box:
                holder.append(deepcopy(holder[key]))
            case 4:
                other, at = rng.choice(list(_places(box)))
                holder[key] = deepcopy(other[at])
            case 5 if isinstance(holder[key], int | float):
                holder[key] = str(holder[key])
            case _:
                holder[key] = deepcopy(rng.choice(VALUES))
    return box[0]


def _place(rng: Random, box: list[Any]) -> Place:
    """Choose a place: any of all, or one near the top, of which there are few."""
    if rng.randrange(2):
        return rng.choice(list(_places(box)))
    place: Place = box, 0
    while (inside := list(_parts(place[0][place[1]]))) and rng.randrange(6):
        place = rng.choice(inside)
    return place


def _places(value: Any) -> Iterator[Place]:
    for holder, key in _parts(value):
        yield holder, key
        yield from _places(holder[key])


def _parts(value: Any) -> Iterator[Place]:
    keys = value if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ()
    return ((value, key) for key in keys)


def spoiled(rng: Random, text: bytes) -> bytes:
    """Return a text with a few wrong bytes, or another text."""
    at = rng.randrange(len(text) + 1)
    match rng.randrange(6):
        case 0:
            return text[:at]
        case 1:
            return text[:at] + rng.choice((b"\xff", b"\x00", b"\xc3\x28", b'"', b"{", b"]", b"\n", b"NaN")) + text[at:]
        case 2:
            return b"[" * DEEP + b"]" * DEEP
        case 3:
            return b"<html><head><title>Log in</title></head><body>Welcome</body></html>"
        case 4:
            return rng.choice(
                (b"", b"null", b"[]", b"{}", b"0", b'""', b"NaN", b"1e999", b'{"kind":null,"items":[null]}')
            )
        case _:
            return text.replace(b'"name"', b'"name":"twice","name"', 1)
