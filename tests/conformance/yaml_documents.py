"""
Random YAML, read by our loader and by the real kubectl: `python -m tests.conformance.yaml_documents --count 2000`.

`kubectl label --local` prints as JSON what it read, and asks no server. What `inject` would write is read again too.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Sequence
from random import Random
from typing import Any, Final

import yaml

from inplace.cli.manifests.text import dump
from inplace.cli.manifests.yaml_loader import parse

HEAD: Final = "apiVersion: example.com/v1\nkind: Any\nmetadata: {name: x}\n"
KUBECTL: Final = ("kubectl", "label", "--local", "-f", "-", "-o", "json", "read=yes")
TOGETHER: Final = 50  # documents in one call, which takes 40 ms
REFUSED: Final = "refused"
WORDS: Final = """
    y Y yes Yes YES n N no on Off OFF true True TRUE false yEs ~ null Null NULL nULL << = .inf -.Inf .nan
    1e-4 5e-5 1E5 1e3 0o17 0O17 017 08 0x1F 0X1f 0b101 -0b11 0b-1 0b 1_000 _1 1__0 0x_ +12 -12 1. .5 -.5 .5e3 ._5 1e400
    -0 -0.0 00 9223372036854775807 9223372036854775808 18446744073709551615 18446744073709551616 -9223372036854775808
    -9223372036854775809 1e19 1e21 1.5e300 12:30 1:59:59.5 2026-11-29 2026-1-2 2026-11-29T09:30:00Z
    1.2.3 v1 4Gi 100m nvidia.com/gpu a.b/c
"""
LETTERS: Final = "0123456789eE+-._xobXOBaf"
TAGS: Final = (
    *("!!str", "!!int", "!!float", "!!bool", "!!null", "!!binary", "!!timestamp", "!custom", "!", "!!map", "!!seq"),
)


class Writer:
    """Write a document's spec from a seed."""

    def __init__(self, seed: int) -> None:
        self._random = Random(seed)
        self._anchors: list[str] = []
        self._mappings: list[str] = []

    def write(self) -> str:
        """Return the text."""
        lines = self._block(1, depth=0)
        return f"spec:\n{lines}"

    def _block(self, indent: int, depth: int) -> str:
        """Return a mapping in block style."""
        space, lines = "  " * indent, list[str]()
        for _ in range(self._random.randint(1, 4)):
            if self._mappings and self._chance(0.1):
                lines.append(f"{space}<<: {self._merged()}\n")
            elif depth < 3 and self._chance(0.25):
                name = self._anchor() if self._chance(0.3) else ""
                inside = self._block(indent + 1, depth + 1)
                lines.append(f"{space}{self._key()}:{name and f' &{name}'}\n{inside}")
                self._anchors += [name] * bool(name)
                self._mappings += [name] * bool(name)
            elif self._chance(0.2):
                items = "".join(f"{space}- {self._flow(depth + 1)}\n" for _ in range(self._random.randint(1, 3)))
                lines.append(f"{space}{self._key()}:\n{items}")
            elif self._chance(0.1):
                style = self._random.choice(("|", "|-", ">", ">+"))
                lines.append(f"{space}{self._key()}: {style}\n{space}  {self._word()}\n{space}  {self._word()}\n")
            else:
                comment = "  # a comment" if self._chance(0.1) else ""
                lines.append(f"{space}{self._key()}: {self._flow(depth + 1)}{comment}\n")
        return "".join(lines)

    def _flow(self, depth: int) -> str:
        """Return a value on one line."""
        if self._anchors and self._chance(0.1):
            return f"*{self._random.choice(self._anchors)}"
        if depth < 4 and self._chance(0.15):
            return f"[{', '.join(self._flow(depth + 1) for _ in range(self._random.randint(0, 3)))}]"
        if depth < 4 and self._chance(0.15):
            parts = (f"{self._key()}: {self._flow(depth + 1)}" for _ in range(self._random.randint(0, 3)))
            return f"{{{', '.join(parts)}}}"
        return self._scalar()

    def _scalar(self) -> str:
        word = self._word()
        if self._chance(0.15):
            word = json.dumps(word) if self._chance(0.5) else f"'{word}'"
        if self._chance(0.05):
            word = f"{self._random.choice(TAGS)} {word}"
        if self._chance(0.05):
            name = self._anchor()
            self._anchors.append(name)
            word = f"&{name} {word}"
        return word

    def _key(self) -> str:
        """Return a key; most differ, as which of two counts where 1 and "1" are both there is nowhere said."""
        if self._chance(0.25):
            return self._word()
        return self._random.choice(("a", "b", "c", "d")) + (
            str(self._random.randint(0, 99)) if self._chance(0.7) else ""
        )

    def _word(self) -> str:
        """Return a plain scalar: one that is known to be read in two ways, a mutation of one, or letters of numbers."""
        words = WORDS.split()
        if self._chance(0.6):
            return self._random.choice(words)
        word = list(self._random.choice(words)) if self._chance(0.5) else [self._random.choice("0123456789.-+")]
        for _ in range(self._random.randint(0, 3)):
            word.insert(self._random.randint(0, len(word)), self._random.choice(LETTERS))
        return "".join(word)

    def _anchor(self) -> str:
        return f"x{self._random.randint(0, 5)}"

    def _merged(self) -> str:
        names = [f"*{self._random.choice(self._mappings)}" for _ in range(self._random.randint(1, 2))]
        return names[0] if len(names) == 1 else f"[{', '.join(names)}]"

    def _chance(self, probability: float) -> bool:
        return self._random.random() < probability


def read(text: str) -> Any:
    """Return the spec that our loader reads, or REFUSED."""
    try:
        return parse(HEAD + text)[0]["spec"]
    except yaml.YAMLError:
        return REFUSED


def kubectl_reads(texts: Sequence[str]) -> list[Any]:
    """Return the spec that kubectl reads from each text, or REFUSED."""
    if not texts:
        return []
    stream = "---\n".join(HEAD + text for text in texts)
    done = subprocess.run(KUBECTL, input=stream, capture_output=True, text=True, timeout=60, check=False)
    if done.returncode == 0:
        decoder, found, at = json.JSONDecoder(parse_int=_integer), list[Any](), 0
        while at < len(done.stdout.rstrip()):
            one, at = decoder.raw_decode(done.stdout, at)
            found += (each["spec"] for each in (one["items"] if one["kind"] == "List" else [one]))
            at += 1  # a line feed
        return found
    return [REFUSED] if len(texts) == 1 else [kubectl_reads([text])[0] for text in texts]


def _integer(digits: str) -> int | float:
    """Return a number that kubectl printed; beyond 64 bits it was a float."""
    return number if abs(number := int(digits)) < 2**63 else float(digits)


def differences(first: int, count: int) -> list[tuple[str, Any, Any]]:
    """Return (text, what we read, what kubectl reads) where the two differ, also of what we would write."""
    texts = [Writer(seed).write() for seed in range(first, first + count)]
    ours = {text: read(text) for text in texts}
    found = []
    refused = [text for text, value in ours.items() if value == REFUSED]
    accepted = [text for text in ours if text not in set(refused)]
    for at in range(0, len(accepted), TOGETHER):
        some = accepted[at : at + TOGETHER]
        written = [dump([{"spec": ours[text]}]) for text in some]
        for said in (some, written):
            theirs = kubectl_reads(said)
            found += [
                (text, ours[original], value)
                for original, text, value in zip(some, said, theirs, strict=True)
                if value != ours[original]
            ]
    return found + [(text, REFUSED, value) for text in refused if (value := kubectl_reads([text])[0]) != REFUSED]


def main() -> int:
    """Print the differences; return 1 if there are any."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=2000)
    parser.add_argument("--first", type=int, default=0)
    options = parser.parse_args()
    found = differences(options.first, options.count)
    for text, ours, theirs in found:
        print(f"--- we read {ours!r}\n--- kubectl reads {theirs!r}\n{text}")
    refused = sum(read(Writer(seed).write()) == REFUSED for seed in range(options.first, options.first + options.count))
    print(f"{options.count:,} documents, of which both refuse {refused:,}: {len(found):,} are read differently")
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main())
