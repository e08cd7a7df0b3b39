"""
Read YAML as kubectl does, into JSON's types, and only as much as a manifest can need.

Guarantees: a text that is not such YAML raises a `yaml.YAMLError` that says what was seen and where. The time is
bounded by the text's length and by VALUES_MAX, although some hundred bytes of anchors and merge keys can stand for any
number of values. No two parts of what is returned are one object.

libyaml reads the text, five times as fast as PyYAML's own reader; go-yaml v2, which kubectl uses, descends from it.
What go-yaml makes of the nodes is done here: a key that stands twice has its last value, a merge key counts where it
stands, and a tag that nobody knows is no tag. docs/adr/0002

Source: go.yaml.in/yaml/v2 decode.go and resolve.go, sigs.k8s.io/yaml yaml.go; Go's strconv (ParseInt with base 0,
ParseFloat).
"""

from __future__ import annotations

import re
import struct
from base64 import b64decode
from collections.abc import Iterator, Mapping
from math import inf, isfinite, isinf, isnan, nan
from typing import Any, Final

import msgspec
import yaml
from yaml._yaml import CParser
from yaml.composer import Composer

from inplace.common.kube.answers import UNREADABLE

Scalar = str | int | float | bool | None

INT_MAX: Final = 2**63 - 1
UINT_MAX: Final = 2**64 - 1
_WORDS: Final[Mapping[str, Scalar]] = {
    form: value
    for value, words in {True: "y yes true on", False: "n no false off"}.items()
    for word in words.split()
    for form in (word, word.capitalize(), word.upper())
} | dict.fromkeys(("", "~", "null", "Null", "NULL"))
_NOT_FINITE: Final[Mapping[str, float]] = {
    **dict.fromkeys((".nan", ".NaN", ".NAN"), nan),
    **dict.fromkeys((".inf", ".Inf", ".INF", "+.inf", "+.Inf", "+.INF"), inf),
    **dict.fromkeys(("-.inf", "-.Inf", "-.INF"), -inf),
}
_INTEGER: Final = re.compile(
    "(?P<sign>[-+]?)(?:0[xX](?P<x>[0-9a-fA-F]+)|0[bB](?P<b>[01]+)|0[oO]?(?P<o>[0-7]+)|(?P<d>0|[1-9][0-9]*))"
    "|0b(?P<inner>[-+])(?P<signed>[01]+)"  # go-yaml's own reader of 0b takes a sign there
)
_BASES: Final = {"x": 16, "b": 2, "signed": 2, "o": 8, "d": 10}
_DIGITS_MAX: Final = 64  # of an integer of 64 bits, in base 2
_NUMBER: Final = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?")
_FRACTION: Final = re.compile(r"\.[0-9]+(?:_[0-9]+)*(?:[eE][-+]?[0-9]+(?:_[0-9]+)*)?")  # Go itself reads its `_`
_EXPONENTS_WRITTEN_OUT: Final = range(-4, 6)  # Go writes others as 1e+06


def read_scalar(text: str) -> Scalar:
    """Return what a plain scalar stands for; a float may be infinite or no number, which JSON cannot say."""
    if text in _WORDS:
        return _WORDS[text]
    if text[0] not in "+-.0123456789":
        return text
    if text in _NOT_FINITE:
        return _NOT_FINITE[text]
    plain = text.replace("_", "")
    if text[0] == ".":
        return _number(text, plain) if _FRACTION.fullmatch(text) else text
    if (number := _integer(plain)) is not None:
        return number
    return _number(text, plain) if _NUMBER.fullmatch(plain) else text


def in_json(value: Scalar) -> Scalar:
    """Return a value as JSON's readers in Go give it: a number without a fraction is an integer if it has 64 bits."""
    if isinstance(value, bool) or not isinstance(value, int | float) or value % 1 != 0:
        return value
    return int(value) if -INT_MAX <= value <= INT_MAX else float(value)  # -2**63 too, as kubectl prints it


def key_text(value: Scalar) -> str | None:
    """Return what a key is in JSON; None if kubectl refuses it."""
    match value:
        case bool():
            return "true" if value else "false"
        case int():
            return str(value) if value <= INT_MAX else None
        case float():
            return _short_text(value)
    return value


def _integer(plain: str) -> int | None:
    """Return an integer of 64 bits; None if it is none."""
    if (found := _INTEGER.fullmatch(plain)) is None:
        return None
    parts = {name: part for name, part in found.groupdict().items() if part is not None}
    sign = parts.pop("sign", "") or parts.pop("inner", "")
    ((base, digits),) = parts.items()
    if len(digits.lstrip("0")) > _DIGITS_MAX:
        return None
    value = int(sign + digits, _BASES[base])
    return value if -INT_MAX - 1 <= value <= (INT_MAX if sign else UINT_MAX) else None


def _number(text: str, plain: str) -> float | str:
    """Return a number; one beyond floats is text."""
    value = float(plain)
    return text if isinf(value) else value


def _short_text(value: float) -> str:
    """Return the shortest text that gives a number back with 32 bits, as Go's FormatFloat(value, 'g', -1, 32)."""
    bits = struct.pack("f", value)
    (single,) = struct.unpack("f", bits)
    if not isfinite(single):
        return ".nan" if isnan(single) else ".inf" if single > 0 else "-.inf"
    texts = (f"{single:.{digits}e}" for digits in range(9))  # nine digits tell any two apart
    shortest = next(text for text in texts if struct.pack("f", float(text)) == bits)
    mantissa, _, exponent = shortest.partition("e")
    if int(exponent) not in _EXPONENTS_WRITTEN_OUT:
        return shortest
    decimals = len(mantissa.lstrip("-").replace(".", "")) - 1 - int(exponent)
    return f"{float(shortest):.{max(0, decimals)}f}"


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
