"""
Evaluate the JSONPath subset that printer columns use: fields, quoted and escaped keys, indexes, `[*]`, `[?(@.a=="b")]`.

Source: k8s.io/client-go/util/jsonpath, as used by additionalPrinterColumns.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache
from typing import Any

Step = Callable[[list[Any]], list[Any]]

_PATHS_MAX = 1024
_TOKEN = re.compile(
    r"\.(?P<field>(?:\\.|[^.\[\]\\])+)"
    r"|\[(?P<index>-?\d+)\]"
    r"|\[(?P<star>\*)\]"
    r"|\[(?P<q>['\"])(?P<quoted>.*?)(?P=q)\]"
    r"|\[\?\(@(?P<lhs>(?:\.[^=!<>\s]+)+)\s*(?P<op>==|!=)\s*(?P<lit>[^)]*)\)\]"
)


def at_path(obj: Any, path: tuple[str, ...]) -> Any:
    """Return the value at a path of plain keys, or None."""
    for key in path:
        if not isinstance(obj, dict):
            return None
        obj = obj.get(key)
    return obj


def first(obj: Any, path: str) -> Any:
    """Return the first value that a JSONPath selects, or None."""
    found = [obj]
    for step in _compiled(path):
        found = step(found)
        if not found:
            return None
    return found[0]


@lru_cache(maxsize=_PATHS_MAX)
def _compiled(path: str) -> tuple[Step, ...]:
    """Return the steps of a path; raises ValueError for what the subset does not know."""
    text = path.strip().removeprefix("{").removesuffix("}").removeprefix("$")
    steps: list[Step] = []
    position = 0
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None:
            raise ValueError(f"expected a JSONPath of fields, indexes and filters, saw {path!r} at {position}")
        steps.append(_step(match))
        position = match.end()
    return tuple(steps)


def _step(match: re.Match[str]) -> Step:
    if match["field"] is not None:
        return _field(re.sub(r"\\(.)", r"\1", match["field"]))
    if match["quoted"] is not None:
        return _field(re.sub(r"\\(.)", r"\1", match["quoted"]))
    if match["index"] is not None:
        return _index(int(match["index"]))
    if match["star"] is not None:
        return lambda values: [item for value in values for item in _items(value)]
    return _filter(match["lhs"], match["op"], match["lit"].strip().strip("'\""))


def _field(key: str) -> Step:
    return lambda values: [value[key] for value in values if isinstance(value, dict) and key in value]


def _index(index: int) -> Step:
    return lambda values: [v[index] for v in values if isinstance(v, list) and -len(v) <= index < len(v)]


def _items(value: Any) -> list[Any]:
    if isinstance(value, dict):
        return list(value.values())
    return value if isinstance(value, list) else []


def _filter(lhs: str, operator: str, literal: str) -> Step:
    def keeps(item: Any) -> bool:
        value = first(item, lhs)
        text = "true" if value is True else "false" if value is False else str(value)
        return (text == literal) == (operator == "==")

    return lambda values: [item for value in values for item in _items(value) if keeps(item)]
