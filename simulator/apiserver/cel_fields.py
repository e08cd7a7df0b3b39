"""
Which fields of an object its CEL rules look at, so that the rest need not be converted.

The conversion of a whole JobSet takes ten times as long as the rules on it, and its status is written often.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final

from inplace.simulator.apiserver.cel_programs import unescaped

Fields = Mapping[str, "Fields | None"]
"""The fields by name, each with those below it; None: the whole value."""

_RULES_MAX: Final = 2048
# Whatever follows these names in another form, such as an index or a method, is a look at the whole value so far.
_LOOK: Final = re.compile(r"\b(?:self|oldSelf)\b(?:(\.hasValue\(\))|(?:\.value\(\))?((?:\.\w+\b(?!\())*))")


@lru_cache(maxsize=_RULES_MAX)
def fields_of(expressions: tuple[str, ...]) -> Fields | None:
    """Return the fields that expressions look at through `self` and `oldSelf`; a field too many does no harm."""
    looks = [look for expression in expressions for look in _LOOK.finditer(unescaped(expression))]
    return _tree([look[2].split(".")[1:] for look in looks if not look[1]])


def _tree(paths: list[list[str]]) -> Fields | None:
    if [] in paths:
        return None
    return {name: _tree([path[1:] for path in paths if path[0] == name]) for name in {path[0] for path in paths}}


def only(value: Any, fields: Fields | None) -> Any:
    """Return a value with these fields alone."""
    if fields is None or not isinstance(value, dict):
        return value
    return {name: only(value[name], below) for name, below in fields.items() if name in value}
