"""The words that a user reads: pages and the help of each command are free of phrases that hide the subject."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from inplace.agent.settings.arguments import USAGE
from tests.cli.command import subcommands
from tests.docs.test_glossary import ROWS

ROOT: Final = Path(__file__).parents[2]
PAGES: Final = sorted(
    {ROOT / "README.md", ROOT / "SECURITY.md", *ROOT.glob("docs/*.md"), *ROOT.glob("docs/runbooks/*.md")}
)
_CODE: Final = re.compile(r"```.*?```|`[^`\n]*`|^    [^\n]*$|\]\([^)\s]*\)", re.DOTALL | re.MULTILINE)
_HIDES_THE_SUBJECT: Final = re.compile(
    r"\b(nobody|somebody|anybody|whoever|whom|so many|(?:that|those|one) who (?:is|are))\b", re.IGNORECASE
)
_UNUSUAL: Final = re.compile(r"\b(anew|by itself|by themselves|as ever|of yours)\b", re.IGNORECASE)  # better: again
GLOSSARY_WORDS_MAX: Final = 40


def found(text: str) -> list[str]:
    """Return the phrases of a text that hide the subject, without code and link targets."""
    return _HIDES_THE_SUBJECT.findall(_CODE.sub(" ", text))


def unusual(text: str) -> list[str]:
    """Return the phrases of a text for which most readers know a simpler word, without code and link targets."""
    return _UNUSUAL.findall(_CODE.sub(" ", text))


def helps() -> Iterator[tuple[str, str]]:
    """Yield each command of `inplace` with its help and that of its options."""
    for name, command in subcommands().items():
        said = [command.help, command.epilog, *(getattr(option, "help", None) for option in command.params)]
        yield name, "\n\n".join(filter(None, said))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_page_names_its_subjects(page: Path) -> None:
    """A page says which program, Pod or person does something."""
    assert found(page.read_text()) == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_page_uses_usual_words(page: Path) -> None:
    """A page says `recreated` and `again` where a translation would say other words."""
    assert unusual(page.read_text()) == []


def test_help_names_its_subjects() -> None:
    """So does the help of each command, and that of the agent."""
    texts = dict(helps())
    assert {"explain", "demo", "inject"} <= set(texts)
    assert {name: said for name, text in texts.items() if (said := found(text) + unusual(text))} == {}
    assert found(USAGE) == []


def test_a_meaning_is_short() -> None:
    """A row of the glossary explains its word in at most 40 words."""
    assert ROWS
    assert [word for word, meaning, _ in ROWS if len(_CODE.sub("]", meaning).split()) > GLOSSARY_WORDS_MAX] == []


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("Nobody can read it.", ["Nobody"]),
        ("at most so many times", ["so many"]),
        ("one who is late", ["one who is"]),
        ("`test_nobody` and [a link](nobody.md)", []),
        ("    nobody\n\nWhoever is late.", ["Whoever"]),
    ],
)
def test_such_a_phrase_is_found(text: str, said: list[str]) -> None:
    """Phrases in sentences are found; names in code, commands and links are not."""
    assert found(text) == said


def test_an_unusual_word_is_found() -> None:
    """In sentences, in any case; not in code."""
    assert unusual("Anew, and by itself: `anew`.") == ["Anew", "by itself"]
