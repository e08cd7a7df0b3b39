"""Commands on the pages name containers of an injected JobSet, and subcommands and options that the program has."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from tests.cli.command import REPOSITORY, subcommands
from tests.cli.injecting import example, injected, pod_spec_of

PAGES = sorted([REPOSITORY / "README.md", *(REPOSITORY / "docs").rglob("*.md")])
_SPAN = re.compile(r"`([^`\n]+)`")
_NEXT = re.compile(r"\s(?:\\?\||&&|;)\s")  # a pipe (escaped in a table), or another command
_BEFORE = re.compile(r"^\.venv/bin/|^kubectl (?=inplace )")  # another name of the same program
_END = re.compile(r"\s(?:>|#)\s|\s2?>")  # of a command: a file, a comment


def commands(text: str, program: str) -> Iterator[list[str]]:
    """Yield the words of each command of a program: in code blocks, and between backticks."""
    fenced = [line for block in text.split("```")[1::2] for line in block.splitlines()]
    indented = [line for line in text.splitlines() if line.startswith("    ")]
    blocks = [line.strip().removeprefix("$ ") for line in (*indented, *fenced)]
    for line in (*blocks, *_SPAN.findall(text)):
        for command in (_BEFORE.sub("", piece) for piece in _NEXT.split(line)):
            if command.startswith(f"{program} "):
                try:
                    yield shlex.split(_END.split(command)[0])
                except ValueError:
                    continue  # a sentence with an apostrophe


def wrong_words(words: list[str]) -> list[str]:
    """Return a subcommand or options that `inplace` does not have."""
    _, name, *rest = words
    if name.startswith("-") or not name.isalpha():
        return []
    if name not in options():
        return [name]
    given = [word.partition("=")[0] for word in rest if word.startswith("-") and word != "-"]
    return [option for option in given if option not in options()[name]]


@cache
def options() -> dict[str, set[str]]:
    """Return the options of each subcommand."""
    return {
        name: {option for one in command.params for option in (*one.opts, *one.secondary_opts)} | {"--help"}
        for name, command in subcommands().items()
    }


@cache
def targets() -> set[str]:
    """Return the targets of the Makefile."""
    return set(re.findall(r"^([a-z-]+):", (REPOSITORY / "Makefile").read_text(), re.MULTILINE))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(REPOSITORY)))
def test_a_page_names_what_there_is(page: Path) -> None:
    """Of `inplace` its subcommands and options; of `kubectl logs` and `exec` the containers that inject makes."""
    text = page.read_text()
    wrong = [" ".join(words) for words in commands(text, "inplace") if len(words) > 1 and wrong_words(words)]
    assert wrong == []
    made = {word for words in commands(text, "make") for word in words[1:] if re.fullmatch(r"[a-z-]+", word)}
    assert made - targets() == set()
    pod = pod_spec_of(injected(example("plain.yaml")))
    containers = {container["name"] for kind in ("containers", "initContainers") for container in pod[kind]}
    named = {
        words[words.index("-c") + 1]
        for words in commands(text, "kubectl")
        if {"logs", "exec"} & set(words) and "-c" in words
    }
    assert {name for name in named if not name.isupper()} <= containers


def test_each_command_of_a_line_is_read() -> None:
    """Commands behind a pipe, in the environment's folder and of the plugin are read; comments and files are not."""
    text = "    inplace inject -f a | .venv/bin/inplace lint -f - > b # c\n\n`kubectl inplace status -A`\n"
    assert list(commands(text, "inplace")) == [
        ["inplace", "inject", "-f", "a"],
        ["inplace", "lint", "-f", "-"],
        ["inplace", "status", "-A"],
    ]
    assert {"docs", "test-node", "soak"} <= targets()


def test_the_runbooks_have_commands_of_both_kinds() -> None:
    """The test above reads something: an agent's log, a worker's, and the main commands of `inplace`."""
    pages = [REPOSITORY / "docs" / "on-call.md", *sorted((REPOSITORY / "docs" / "runbooks").glob("*.md"))]
    text = "\n".join(page.read_text() for page in pages)
    logs = [words for words in commands(text, "kubectl") if "logs" in words and "-c" in words]
    assert {words[words.index("-c") + 1] for words in logs} == {"inplace-agent", "worker"}
    assert {"explain", "logs", "status", "timeline", "restart"} <= {words[1] for words in commands(text, "inplace")}
    assert wrong_words(["inplace", "explian"]) == ["explian"]
    assert wrong_words(["inplace", "explain", "--wait", "X"]) == ["--wait"]
