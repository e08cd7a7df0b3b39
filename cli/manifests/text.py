"""
Change objects in the text of a manifest and keep its comments, order, quotes and blank lines.

PyYAML tells the position of each node. Each change of a value becomes the smallest edit of the text. The edited text is
read again. If it does not give exactly the wanted objects (anchors, merge keys, unusual layouts), the whole text is
written anew: the objects are then right, but comments are lost.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from math import inf
from typing import Any, Final

import yaml

from inplace.cli.manifests.documents import Stream
from inplace.cli.manifests.yaml_loader import TEXT, parse, read_scalar

FLOW_CHARS_MAX: Final = 120  # of a value on one line; one that we make longer goes below its key
_WIDTH: Final = 1_000_000  # PyYAML folds long texts, which nobody does by hand


@dataclass(frozen=True, slots=True)
class Edited:
    """The text of a stream after a change.

    Args:
        keeps_comments: False when all of it had to be written anew.
    """

    text: str
    keeps_comments: bool


def with_documents(stream: Stream, documents: Sequence[Any], first: Sequence[Any] = ()) -> Edited:
    """Return the stream's text with its documents changed into these, and `first` in front of them.

    Args:
        stream: what was read.
        documents: one for each of the stream's, changed or not.
        first: whole new documents.
    """
    wanted = [*first, *documents]
    if wanted == list(stream.documents):
        return Edited(stream.text, keeps_comments=True)
    with suppress(yaml.YAMLError):
        text = _edited(stream, documents)
        if first:
            opened = next((line for line in text.splitlines() if line and not line.startswith("#")), "") == "---"
            text = dump(first) + ("" if opened else "---\n") + text
        if list(parse(text)) == wanted:
            return Edited(text, keeps_comments=True)
    return Edited(dump(wanted), keeps_comments=False)


def dump(documents: Sequence[Any]) -> str:
    """Return documents as YAML."""
    return "---\n".join(_block(document) for document in documents if document is not None)


def _edited(stream: Stream, documents: Sequence[Any]) -> str:
    """Return the text after the smallest edits; whether they say what was wanted is for the caller to see."""
    nodes = list(yaml.compose_all(stream.text, yaml.CSafeLoader))
    edits: list[tuple[int, int, str]] = []
    for node, old, new in zip(nodes, stream.documents, documents, strict=True):
        edits += _edits(node, old, new, stream.text)
    parts, at = list[str](), 0
    for start, end, replacement in sorted(edits, key=lambda edit: edit[0]):  # stable: at one place, the innermost first
        parts += [stream.text[at:start], replacement]
        at = max(at, end)
    return "".join((*parts, stream.text[at:])) if parts else stream.text


def _edits(node: yaml.Node, old: Any, new: Any, text: str) -> Iterator[tuple[int, int, str]]:
    """Yield (start, end, replacement) that turn a node from `old` into `new`."""
    if old == new:
        return
    in_block = isinstance(node, yaml.CollectionNode) and not node.flow_style and node.value
    if in_block and isinstance(node, yaml.MappingNode) and isinstance(new, dict) and set(old) <= set(new):
        for key, value in node.value:
            if key.value not in old:
                continue
            if _outgrows_its_line(value, old[key.value], new[key.value]):
                start, end = key.end_mark.index + 1, value.end_mark.index
                yield start, end, _below(new[key.value], node.start_mark.column)
            else:
                yield from _edits(value, old[key.value], new[key.value], text)
        added = {key: value for key, value in new.items() if key not in old}
        lines = _block(added) if added else ""
        yield from _insertion(_line_after(node, text), lines, node.start_mark.column, text)
    elif in_block and isinstance(node, yaml.SequenceNode) and isinstance(new, list) and len(new) >= len(old):
        count = len(new) - len(old)
        if new[count:] == old:  # at the front: a command's wrapper
            start = text.rindex("\n", 0, node.start_mark.index) + 1
            yield from _insertion(start, _items(new[:count]), node.start_mark.column, text)
            return
        for value, was, becomes in zip(node.value, old, new, strict=False):
            yield from _edits(value, was, becomes, text)
        yield from _insertion(_line_after(node, text), _items(new[len(old) :]), node.start_mark.column, text)
    else:
        start, end = node.start_mark.index, _end(node)
        yield start, end, (" " if start == end else "") + _flow(new)


def _outgrows_its_line(node: yaml.Node, old: Any, new: Any) -> bool:
    """Say whether a value in braces or brackets would become too long a line."""
    in_flow = isinstance(node, yaml.CollectionNode) and node.flow_style
    return bool(in_flow and new and old != new and len(_flow(new)) > FLOW_CHARS_MAX)


def _below(value: Any, column: int) -> str:
    """Return a value in lines below its key, which begins in `column`."""
    indent = " " * (column if isinstance(value, list) else column + 2)
    lines = _items(value) if isinstance(value, list) else _block(value)
    return "".join(f"\n{indent}{line}" for line in lines.splitlines())


def _insertion(place: int, block: str, column: int, text: str) -> Iterator[tuple[int, int, str]]:
    """Yield the edit that inserts whole lines, if any, at the start of a line."""
    if block:
        lines = "".join(f"{' ' * column}{line}\n" for line in block.splitlines())
        yield place, place, lines if not place or text[place - 1] == "\n" else "\n" + lines


def _line_after(node: yaml.Node, text: str) -> int:
    """Return where the line after a node's last character begins."""
    end = _end(node)
    if end and text[end - 1] == "\n":  # a literal block's end mark is behind its last line
        return end
    newline = text.find("\n", end)
    return len(text) if newline < 0 else newline + 1


def _end(node: yaml.Node) -> int:
    """Return where a node ends; the end mark of a block's own is behind what follows it."""
    while isinstance(node, yaml.CollectionNode) and not node.flow_style and node.value:
        last = node.value[-1]
        node = last[1] if isinstance(last, tuple) else last
    return int(node.end_mark.index)


def _block(value: Any) -> str:
    return yaml.dump(value, Dumper=_Dumper, default_flow_style=False, sort_keys=False, width=_WIDTH, allow_unicode=True)


def _items(items: Sequence[Any]) -> str:
    """Return items of a list, one below the other."""
    return "".join(f"- {_flow(item)}\n" if _is_short(item) else _block([item]) for item in items)


def _is_short(item: Any) -> bool:
    """Say whether an item stands on one line: it is plain, and no text of several lines."""
    return not isinstance(item, dict | list) and "\n" not in str(item)


def _flow(value: Any) -> str:
    """Return a value on one line."""
    text = yaml.dump(value, Dumper=_Dumper, default_flow_style=True, sort_keys=False, width=_WIDTH, allow_unicode=True)
    return text.removesuffix("\n").removesuffix("\n...").rstrip("\n")


class _Dumper(yaml.SafeDumper):
    """Short mappings and lists of plain values stand on one line; the whole never does."""

    def serialize(self, node: yaml.Node) -> None:
        """Write a document in lines, unless `_flow` asked for one line."""
        if isinstance(node, yaml.CollectionNode) and node.value:
            node.flow_style = bool(self.default_flow_style)
        super().serialize(node)

    def ignore_aliases(self, data: Any) -> bool:  # noqa: ARG002 - PyYAML's signature
        """Write everything out: a new anchor would help no reader."""
        return True

    def represent_sequence(self, tag: str, sequence: Any, flow_style: bool | None = None) -> yaml.SequenceNode:
        """Choose the style of a list."""
        plain = all(map(_is_short, sequence)) and sum(len(str(item)) + 2 for item in sequence) <= FLOW_CHARS_MAX
        return super().represent_sequence(tag, sequence, flow_style=True if plain else flow_style)

    def represent_mapping(self, tag: str, mapping: Any, flow_style: bool | None = None) -> yaml.MappingNode:
        """Choose the style of a mapping."""
        node: yaml.MappingNode = super().represent_mapping(tag, mapping, flow_style=flow_style)
        if _width(node) <= FLOW_CHARS_MAX:
            node.flow_style = True
        return node


def _width(node: yaml.Node) -> float:
    """Return about how many characters a value takes on one line; infinity where a text has several lines."""
    if isinstance(node, yaml.ScalarNode):
        return inf if "\n" in node.value else len(node.value) + 2
    parts = (part for entry in node.value for part in (entry if isinstance(entry, tuple) else (entry,)))
    return 2 + sum(map(_width, parts))


def _represent_text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    """Quote by double quotes what kubectl or PyYAML would not read as this text, and what holds single ones."""
    if "\n" in text:
        return dumper.represent_scalar(TEXT, text, style="|")  # in braces or brackets PyYAML quotes it
    resolved = dumper.resolve(yaml.ScalarNode, text, (True, False))  # type: ignore[no-untyped-call]
    is_text = resolved == TEXT and read_scalar(text) == text
    return dumper.represent_scalar(TEXT, text, style='"' if "'" in text or not is_text else None)


_Dumper.add_representer(str, _represent_text)
