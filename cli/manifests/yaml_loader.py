"""
Read YAML as kubectl does, into JSON's types, and only as much as a manifest can need.

Guarantees: a text that is not such YAML raises a `yaml.YAMLError` that says what was seen and where. The time is
bounded by the text's length and by VALUES_MAX, although some hundred bytes of anchors and merge keys can stand for any
number of values. No two parts of what is returned are one object.

libyaml reads the text, five times as fast as PyYAML's own reader; go-yaml v2, which kubectl uses, descends from it.
What go-yaml makes of the nodes is done here: a key that stands twice has its last value, a merge key counts where it
stands, and a tag that nobody knows is no tag. docs/adr/0002

Source: go.yaml.in/yaml/v2 decode.go, sigs.k8s.io/yaml yaml.go.
"""

from __future__ import annotations

import re
from base64 import b64decode
from collections.abc import Iterator
from math import isfinite
from typing import Any, Final

import msgspec
import yaml
from yaml._yaml import CParser
from yaml.composer import Composer

from inplace.cli.manifests.scalars import INT_MAX, Scalar, in_json, key_text, read_scalar
from inplace.common.kube.answers import UNREADABLE

if not yaml.__with_libyaml__:
    raise ImportError("expected PyYAML with libyaml, as all wheels of PyPI have it, saw one that was built without")

VALUES_MAX: Final = 100_000  # 1,000 JobSets, or an object of etcd's limit (1.5 MiB); a second of CPU time
# Of them by aliases and merge keys: 50 Pod templates. Each costs as much as a written one; three bytes can make 1,000.
REPEATED_MAX: Final = 10_000
DEPTH_MAX: Final = 100  # a Pod template nests 15 deep; what reads the objects after this recurses
PREFIX: Final = "tag:yaml.org,2002:"
TEXT: Final = f"{PREFIX}str"
_PLAIN: Final = ""  # no tag, no quotes
_BINARY: Final = f"{PREFIX}binary"
_MERGE: Final = f"{PREFIX}merge"
_TIMESTAMP: Final = f"{PREFIX}timestamp"
_DATE: Final = re.compile(
    r"[0-9]{4}-[0-9]{1,2}-[0-9]{1,2}([Tt ][0-9]{1,2}:[0-9]{1,2}:[0-9]{1,2}(\.[0-9]+)?(Z|[-+][0-9]{2}:[0-9]{2})?)?"
)
_TYPES: Final = {f"{PREFIX}null": type(None), f"{PREFIX}bool": bool, f"{PREFIX}int": int, f"{PREFIX}float": float}
_NO_CHARACTER: Final = re.compile("[\udc80-\udcff]")
# JSON's escapes of a character beyond 16 bits, behind what a backslash escapes.
_PAIR: Final = re.compile(r"\\\\|\\u([dD][89abAB]..)\\u([dD][c-fC-F]..)", re.ASCII)


def parse(text: str) -> tuple[Any, ...]:
    """Return the documents of a text; no two of their parts are one object.

    Raises:
        yaml.YAMLError: it is neither YAML nor JSON, or more than a manifest can need.
    """
    reader = _Reader()
    try:
        return tuple(reader.document(node) for node in _nodes(text))
    except RecursionError:
        raise yaml.YAMLError("merge keys of merge keys, too many for one another") from None
    except (ValueError, OverflowError) as error:  # PyYAML's own, of characters and versions that there are not
        raise yaml.YAMLError(str(error)) from error


def with_whole_characters(text: str) -> str:
    """Return a text; JSON has a character where two escapes stood for it, which libyaml and kubectl refuse in YAML."""
    if not any(pair[1] for pair in _PAIR.finditer(text)):
        return text
    try:
        msgspec.json.decode(text)
    except UNREADABLE:
        return text
    return _PAIR.sub(lambda pair: str(msgspec.json.decode(f'"{pair[0]}"')) if pair[1] else pair[0], text)


def _nodes(text: str) -> Iterator[yaml.Node]:
    """Yield each document's node."""
    composer = _Composer(text)
    while composer.check_node():
        node = composer.get_node()
        assert node is not None, "expected a document where check_node saw one"
        yield node


class _Reader:
    """Turn nodes into values; a node that an alias repeats becomes a value of its own each time."""

    def __init__(self) -> None:
        self._values = 0
        self._repeated = 0
        self._seen: set[yaml.Node] = set()
        self._unsayable: yaml.YAMLError | None = None

    def document(self, node: yaml.Node) -> Any:
        """Return a document; what JSON cannot say is refused, unless a later key of the same name hides it.

        Raises:
            yaml.YAMLError: as `read`.
        """
        self._unsayable = None
        value = self.read(node)
        if self._unsayable is not None and not _is_sayable(value):
            raise self._unsayable
        return value

    def read(self, node: yaml.Node, depth: int = 0, *, is_repeated: bool = False) -> Any:
        """Return a value.

        Raises:
            yaml.YAMLError: JSON cannot say it, it has too many parts or is deeper than DEPTH_MAX, or aliases repeat too
                many.
        """
        if isinstance(node, yaml.ScalarNode):
            self._spend(is_repeated=is_repeated)
            value = in_json(_tagged(node))
            if not _is_sayable(value):
                self._unsayable = _refused(node, "a finite number")
            return value
        is_repeated = is_repeated or node in self._seen
        self._seen.add(node)
        self._spend(is_repeated=is_repeated)
        if depth > DEPTH_MAX:
            raise yaml.YAMLError(f"a nesting of more than {DEPTH_MAX}")
        if isinstance(node, yaml.SequenceNode):
            return [self.read(item, depth + 1, is_repeated=is_repeated) for item in node.value]
        found: dict[str | None, Any] = {}
        for key, value in node.value:
            if _is_merge(key):
                for merged in _merged(value):
                    found |= self.read(merged, depth + 1, is_repeated=True)
            else:
                found[self._key(key)] = self.read(value, depth + 1, is_repeated=is_repeated)
        return found

    def _key(self, node: yaml.Node) -> str | None:
        """Return a key as JSON has it; None if it has none."""
        key = key_text(_tagged(node)) if isinstance(node, yaml.ScalarNode) else None
        if key is None:
            self._unsayable = _refused(node, "a key that is a text, a number or a boolean")
            if not isinstance(node, yaml.ScalarNode):  # kubectl refuses it even where a later key hides it
                raise self._unsayable
        return key

    def _spend(self, *, is_repeated: bool) -> None:
        self._values += 1
        self._repeated += is_repeated
        if self._values > VALUES_MAX:
            raise _too_many()
        if self._repeated > REPEATED_MAX:
            raise yaml.YAMLError(
                f"more than {REPEATED_MAX:,} values that aliases and merge keys repeat, each of which costs as much as "
                "a written one: write them out, or share less"
            )


def _too_many() -> yaml.YAMLError:
    return yaml.YAMLError(f"more than {VALUES_MAX:,} values")


def _is_sayable(value: Any) -> bool:
    """Say whether JSON can say a value: its numbers are finite, and no key is None."""
    if isinstance(value, dict):
        return None not in value and all(map(_is_sayable, value.values()))
    return all(map(_is_sayable, value)) if isinstance(value, list) else not isinstance(value, float) or isfinite(value)


def _tagged(node: yaml.ScalarNode) -> Scalar:
    """Return the value of a scalar; a tag in front of it must be what it would be without one, or text."""
    text = str(node.value)
    if node.tag == _PLAIN:
        return read_scalar(text)
    if node.tag == _BINARY:
        decoded = b64decode(text, validate=True).decode(errors="surrogateescape")
        return _NO_CHARACTER.sub("\N{REPLACEMENT CHARACTER}", decoded)  # one for each byte, as Go writes JSON
    if node.tag == _TIMESTAMP and not _DATE.fullmatch(text):
        raise _refused(node, "a date")
    if (wanted := _TYPES.get(node.tag)) is None:
        return text
    value = read_scalar(text)
    if type(value) is wanted:
        return value
    if wanted is float and type(value) is int and value <= INT_MAX:
        return float(value)
    raise _refused(node, f"a value that is a {node.tag.removeprefix(PREFIX)}")


def _is_merge(node: yaml.Node) -> bool:
    return isinstance(node, yaml.ScalarNode) and node.value == "<<" and node.tag in (_PLAIN, _MERGE)


def _merged(node: yaml.Node) -> list[yaml.Node]:
    """Return the mappings of a merge key, the strongest last."""
    found = node.value[::-1] if isinstance(node, yaml.SequenceNode) else [node]
    for each in found:
        if not isinstance(each, yaml.MappingNode):
            raise _refused(node, "a mapping, or a list of mappings, that a merge key names")
    return found


def _refused(node: yaml.Node, expected: str) -> yaml.YAMLError:
    other = "a list" if isinstance(node, yaml.SequenceNode) else "a mapping"
    seen = f"{node.value!r:.80}" if isinstance(node, yaml.ScalarNode) else other
    return yaml.constructor.ConstructorError(None, None, f"{seen} where {expected} has to be", node.start_mark)


class _Composer(Composer, CParser):
    """Make one text's nodes; their tag is _PLAIN, TEXT in quotes, or what stands in front of them."""

    def __init__(self, text: str) -> None:
        CParser.__init__(self, text)
        Composer.__init__(self)
        self._values = 0
        self._depth = 0

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        """Read a value, one level below its parent; an anchor may be given again."""
        self._values += 1
        self._depth += 1
        if self._values > VALUES_MAX:
            raise _too_many()
        if self._depth > DEPTH_MAX:
            raise yaml.YAMLError(f"a nesting of more than {DEPTH_MAX}")
        if isinstance(event := self.peek_event(), yaml.NodeEvent) and not isinstance(event, yaml.AliasEvent):
            self.anchors.pop(event.anchor, None)
        node = super().compose_node(parent, index)
        self._depth -= 1
        return node

    def compose_scalar_node(self, anchor: dict[Any, yaml.Node]) -> yaml.ScalarNode:
        """Read a scalar; behind a lone exclamation mark it is text."""
        is_text = isinstance(event := self.peek_event(), yaml.ScalarEvent) and event.tag == "!"
        node = super().compose_scalar_node(anchor)
        node.tag = TEXT if is_text else node.tag
        return node

    def resolve(self, kind: type[yaml.Node], value: str | None, implicit: Any) -> str:  # noqa: ARG002
        """Return the tag of a node without one; `implicit` is a pair for a scalar alone: plain, or in quotes."""
        return _PLAIN if kind is yaml.ScalarNode and implicit[0] else TEXT

    def descend_resolver(self, parent: yaml.Node | None, index: int) -> None:
        """Do nothing: what a node is does not depend on its place."""

    def ascend_resolver(self) -> None:
        """Do nothing."""
