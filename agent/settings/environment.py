"""
Read typed environment variables, and collect all problems instead of stopping at the first one.

An empty variable counts as unset: the downward API sets it to "" while the annotation does not exist.
"""

from __future__ import annotations

from inplace.common.bare.typed import Callable, Final, Mapping, TypeVar

_SEEN_CHARACTERS_MAX: Final = 80
_NAME_CHARACTERS: Final = frozenset("abcdefghijklmnopqrstuvwxyz0123456789-.")
_UID_CHARACTERS: Final = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-")

T = TypeVar("T")


class Environment:
    """Read variables; `problems` holds a sentence for each that cannot be used."""

    def __init__(self, env: Mapping[str, str]) -> None:
        self._env = env
        self.problems: list[str] = []

    def get(self, name: str) -> str:
        """Return the text, "" when unset."""
        return self._env.get(name, "")

    def refuse(self, name: str, expected: str, seen: str | None = None) -> None:
        """Note that a variable cannot be used."""
        seen = self.get(name) if seen is None else seen
        words = f"saw {seen[:_SEEN_CHARACTERS_MAX]!r}" if seen else "but it is not set"
        self.problems.append(f"{name}: expected {expected}, {words}")

    def name(self, name: str, length_max: int) -> str:
        """Return a required name of a Kubernetes object (RFC 1123 subdomain)."""
        text = self.get(name)
        if not is_object_name(text, length_max):
            self.refuse(name, f"a Kubernetes name (a-z, 0-9, '-', '.', at most {length_max} characters)")
        return text

    def integer(self, name: str, least: int, most: int) -> int | None:
        """Return a decimal integer in [least, most]; None when unset or refused."""
        text = self.get(name)
        if not text:
            return None
        if is_integer(text, least, most):
            return int(text)
        self.refuse(name, f"an integer from {least} to {most}")
        return None

    def path(self, name: str, reserved: tuple[str, ...]) -> str | None:
        """Return an absolute URL path; None when unset or refused."""
        text = self.get(name)
        if not text:
            return None
        if text[0] == "/" and text.isascii() and text.isprintable() and not set(text) & set(" ?#"):
            if text not in reserved:
                return text
            self.refuse(name, f"a path other than the agent's own {', '.join(reserved)}")
        else:
            self.refuse(name, "an absolute path without blanks, query or fragment")
        return None

    def file(self, name: str) -> str:
        """Return an absolute path of a file, "" when unset."""
        text = self.get(name)
        if text and (not text.startswith("/") or text.endswith("/")):
            self.refuse(name, "the absolute path of a file")
        return text

    def uid(self, name: str) -> str:
        """Return an object's uid, "" when unset."""
        text = self.get(name)
        if text and (len(text) > 128 or not set(text) <= _UID_CHARACTERS):
            self.refuse(name, "a uid (letters, digits, '-')")
        return text

    def seconds(self, name: str, most: float, default: float = 0.0) -> float:
        """Return seconds in [0, most], `default` when unset or refused."""
        text = self.get(name)
        if not text:
            return default
        try:
            value = float(text)
        except ValueError:
            value = -1.0
        if 0.0 <= value <= most:
            return value
        self.refuse(name, f"seconds from 0 to {most:g}")
        return default

    def choice(self, name: str, allowed: tuple[str, ...]) -> str:
        """Return one of `allowed` whatever its case, the first when unset."""
        text = self.get(name).lower() or allowed[0]
        if text not in allowed:
            self.refuse(name, f"one of {', '.join(allowed)}")
        return text

    def either(self, ours: str, theirs: str, read: Callable[[str], T | None], default: T) -> T:
        """Return the value of whichever of two names is set; both set and different is a contradiction."""
        values = [value for value in (read(ours), read(theirs)) if value is not None]
        if len(values) == 2 and values[0] != values[1]:
            self.refuse(theirs, f"the same value as {ours} ({values[0]!r}) or none")
        return values[0] if values else default


def is_integer(text: str, least: int, most: int) -> bool:
    """Say whether `text` is a decimal integer in [least, most]: ASCII digits only, no sign, no space."""
    return text.isascii() and text.isdigit() and len(text) <= len(str(most)) and least <= int(text) <= most


def is_object_name(text: str, length_max: int) -> bool:
    """Say whether `text` can name an object; such a name needs no percent-encoding in a URL."""
    return (
        0 < len(text) <= length_max and set(text) <= _NAME_CHARACTERS and text[0] not in "-." and text[-1] not in "-."
    )
