"""
Read YAML as the API server's clients do: only JSON's types, and only as much as a manifest can need.

Guarantees: a text that is not such YAML raises a `yaml.YAMLError` that says what was seen and where. The time is
bounded by the text's length and by VALUES_MAX, although some hundred bytes of anchors and merge keys can stand for any
number of values. Dates, `12:30` and `=` stay text, as in Kubernetes. A repeated key is refused.

libyaml reads the text, five times as fast as PyYAML's own reader; kubectl's reader descends from it. docs/adr/0002
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterator
from contextlib import suppress
from math import isfinite
from typing import Any, Final

import msgspec
import yaml
from yaml.composer import Composer

from inplace.common.kube.answers import UNREADABLE

if not yaml.__with_libyaml__:
    raise ImportError("expected PyYAML with libyaml, as all wheels of PyPI have it, saw one that was built without")

VALUES_MAX: Final = 100_000  # 1,000 JobSets, or an object of etcd's limit (1.5 MiB); a second of CPU time
# Of them by aliases and merge keys: 50 Pod templates. Each costs as much as a written one; three bytes can make 1,000.
REPEATED_MAX: Final = 10_000
DEPTH_MAX: Final = 100  # a Pod template nests 15 deep; what reads the objects after this recurses
INTEGERS: Final = range(-(2**63), 2**64)  # what JSON's readers in Go take
_PREFIX: Final = "tag:yaml.org,2002:"
_TEXT: Final = f"{_PREFIX}str"
_MERGE: Final = f"{_PREFIX}merge"
_SCALARS: Final = tuple(f"{_PREFIX}{name}" for name in ("null", "bool", "int", "float", "str"))
_TYPES: Final = (*_SCALARS, f"{_PREFIX}seq", f"{_PREFIX}map")
# PyYAML's, without the numbers to the base of 60, which Kubernetes does not read as numbers.
_INT: Final = re.compile(r"[-+]?(?:0b[01_]+|0x[0-9a-fA-F_]+|0[0-7_]*|[1-9][0-9_]*)$")
_FLOAT: Final = re.compile(
    r"(?:[-+]?[0-9][0-9_]*\.[0-9_]*(?:[eE][-+][0-9]+)?|\.[0-9][0-9_]*(?:[eE][-+][0-9]+)?"
    r"|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN))$"
)
# JSON's escapes of a character beyond 16 bits, behind what a backslash escapes.
_PAIR: Final = re.compile(r"\\\\|\\u([dD][89abAB]..)\\u([dD][c-fC-F]..)", re.ASCII)


def parse(text: str) -> tuple[Any, ...]:
    """Return the documents of a text; no two of their parts are one object.

    Raises:
        yaml.YAMLError: it is neither YAML nor JSON, or more than a manifest can need.
    """
    copier = _Copier()
    return tuple(copier.copy(document) for document in _documents(text))


def with_whole_characters(text: str) -> str:
    """Return a text; JSON has a character where two escapes stood for it, which libyaml and kubectl refuse in YAML."""
    if not any(pair[1] for pair in _PAIR.finditer(text)):
        return text
    try:
        msgspec.json.decode(text)
    except UNREADABLE:
        return text
    return _PAIR.sub(lambda pair: str(msgspec.json.decode(f'"{pair[0]}"')) if pair[1] else pair[0], text)


def _documents(text: str) -> Iterator[Any]:
    try:
        yield from yaml.load_all(text, YamlLoader)
    except RecursionError:
        raise yaml.YAMLError("merge keys of merge keys, too many for one another") from None
    except (ValueError, OverflowError) as error:  # PyYAML's own, of characters and versions that there are not
        raise yaml.YAMLError(str(error)) from error


class _Copier:
    """Copy the documents of a text so that what an anchor made one is changed alone."""

    def __init__(self) -> None:
        self._values = 0
        self._repeated = 0
        self._seen: dict[int, Any] = {}  # by identity; it keeps them alive, so that no identity comes twice

    def copy(self, value: Any, depth: int = 0, *, is_repeated: bool = False) -> Any:
        """Return a copy.

        Raises:
            yaml.YAMLError: it has too many parts, or aliases repeat too many, or it is deeper than DEPTH_MAX.
        """
        if isinstance(value, dict | list):
            is_repeated = is_repeated or id(value) in self._seen
            self._seen[id(value)] = value
        self._values += 1
        self._repeated += is_repeated
        if self._values > VALUES_MAX:
            raise yaml.YAMLError(f"more than {VALUES_MAX:,} values")
        if self._repeated > REPEATED_MAX:
            raise _too_many_repeated()
        if depth > DEPTH_MAX:
            raise yaml.YAMLError(f"a nesting of more than {DEPTH_MAX}")
        if isinstance(value, dict):
            return {key: self.copy(item, depth + 1, is_repeated=is_repeated) for key, item in value.items()}
        if isinstance(value, list):
            return [self.copy(item, depth + 1, is_repeated=is_repeated) for item in value]
        return value


def _too_many_repeated() -> yaml.YAMLError:
    return yaml.YAMLError(
        f"more than {REPEATED_MAX:,} values that aliases and merge keys repeat, each of which costs as much as a "
        "written one: write them out, or share less"
    )


class YamlLoader(Composer, yaml.CSafeLoader):
    """One text; it has a budget of values, which merge keys pay from too."""

    def __init__(self, text: str) -> None:
        yaml.CSafeLoader.__init__(self, text)
        Composer.__init__(self)
        self._left = VALUES_MAX
        self._merged = 0
        self._depth = 0

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        """Read a value, one level below its parent."""
        self._spend(1)
        self._depth += 1
        if self._depth > DEPTH_MAX:
            raise yaml.YAMLError(f"a nesting of more than {DEPTH_MAX}")
        node = super().compose_node(parent, index)
        self._depth -= 1
        return node

    def compose_scalar_node(self, anchor: dict[Any, yaml.Node]) -> yaml.ScalarNode:
        """Read a scalar; a tag in front of it must be what it would be without one, or text."""
        node = super().compose_scalar_node(anchor)
        plain = self.resolve(yaml.ScalarNode, node.value, (True, False))  # type: ignore[no-untyped-call]
        if node.tag not in (_TEXT, _MERGE) and (node.tag != plain or node.tag not in _SCALARS):
            raise _refused(node, f"a text, or a value that is a {node.tag.removeprefix(_PREFIX)}")
        return node

    def flatten_mapping(self, node: yaml.MappingNode) -> None:
        """Replace merge keys by what they stand for."""
        before = len(node.value)
        super().flatten_mapping(node)
        added = max(0, len(node.value) - before)
        self._spend(added)
        self._merged += added
        if self._merged > REPEATED_MAX:
            raise _too_many_repeated()

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        """Read a mapping whose keys all differ."""
        seen: set[Any] = set()
        for key, _ in node.value if isinstance(node, yaml.MappingNode) else ():
            if key.tag == _MERGE or not isinstance(key, yaml.ScalarNode):
                continue
            if key.value in seen:
                raise yaml.constructor.ConstructorError(
                    "while reading a mapping", node.start_mark, f"the key {key.value!r} a second time", key.start_mark
                )
            seen.add(key.value)
        return super().construct_mapping(node, deep)

    def read_integer(self, node: yaml.ScalarNode) -> int:
        """Return an integer."""
        with suppress(ValueError):  # 0x_, or more digits than Python reads
            if (value := int(self.construct_yaml_int(node))) in INTEGERS:
                return value
        raise _refused(node, "an integer of 64 bits")

    def read_number(self, node: yaml.ScalarNode) -> float:
        """Return a number that JSON can say."""
        value = float(self.construct_yaml_float(node))
        if not isfinite(value):
            raise _refused(node, "a finite number")
        return value

    def _spend(self, values: int) -> None:
        self._left -= values
        if self._left < 0:
            raise yaml.YAMLError(f"more than {VALUES_MAX:,} values")


def _refused(node: yaml.Node, expected: str) -> yaml.YAMLError:
    return yaml.constructor.ConstructorError(
        None, None, f"{node.value!r:.80} where {expected} has to be", node.start_mark
    )


_RESOLVED: Final = {f"{_PREFIX}int": (_INT, "-+0123456789"), f"{_PREFIX}float": (_FLOAT, "-+0123456789.")}
YamlLoader.yaml_constructors = {
    tag: made for tag, made in yaml.SafeLoader.yaml_constructors.items() if tag is None or tag in _TYPES
} | {f"{_PREFIX}int": YamlLoader.read_integer, f"{_PREFIX}float": YamlLoader.read_number}
YamlLoader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag in (*_TYPES, _MERGE) and tag not in _RESOLVED]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
for _tag, (_pattern, _first) in _RESOLVED.items():
    YamlLoader.add_implicit_resolver(_tag, _pattern, list(_first))
