"""
Write the man page inplace(1) from the command line's own definition.

python -m release.man_page   rewrites docs/inplace.1, which the wheel installs as share/man/man1/inplace.1
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import typer.main
from typer.core import TyperGroup

from inplace.agent.version import VERSION
from inplace.cli.main import app
from inplace.cli.refusal import CliExit

PAGE: Final = Path(__file__).parents[1] / "docs" / "inplace.1"
EXIT_WORDS: Final = {
    CliExit.DONE: "The command did what it was asked for.",
    CliExit.NOT_DONE: "The command failed; standard error says why.",
    CliExit.USAGE: "An argument or an option is wrong.",
    CliExit.NO_CLUSTER: "There is no cluster: no kubeconfig, no such context, no answer, or refused credentials.",
    CliExit.NOT_ALLOWED: "The cluster's RBAC does not allow it.",
    CliExit.NOT_FOUND: "There is no such JobSet.",
    CliExit.INTERRUPTED: "Ctrl-C.",
}
_ENVIRONMENT: Final = {
    "KUBECONFIG": "Paths of kubeconfigs, with colons between them, as for kubectl.",
    "COLUMNS": "The width of tables, also in a pipe.",
    "NO_COLOR": "Switches colours off.",
}


def man_page() -> str:
    """Return the page in roff."""
    group = typer.main.get_command(app)
    assert isinstance(group, TyperGroup)
    return "\n".join(_lines(group)) + "\n"


def _lines(group: TyperGroup) -> Iterator[str]:
    yield f'.TH INPLACE 1 "" "inplace {VERSION}" "User Commands"'
    yield from (".SH NAME", r"inplace \- in-place restart for distributed training on Kubernetes")
    yield from (".SH SYNOPSIS", r".B inplace", r".I COMMAND", r"[\fIOPTION\fR]...")
    yield from (".SH DESCRIPTION", _text(str(group.help)), r"\fBkubectl inplace\fR is the same program.")
    yield ".SH COMMANDS"
    for name, command in group.commands.items():
        yield from _command(name, command)
    yield ".SH EXIT STATUS"
    for code in CliExit:
        yield from (".TP", f".B {code.value}", _text(EXIT_WORDS[code]))
    yield ".SH ENVIRONMENT"
    for name, words in _ENVIRONMENT.items():
        yield from (".TP", f".B {name}", _text(words))
    yield from (".SH SEE ALSO", ".BR kubectl (1)")


def _command(name: str, command: Any) -> Iterator[str]:
    """Yield a command's subsection: its arguments in the heading, its sentences, its options."""
    arguments = [one for one in command.params if one.param_type_name == "argument"]
    words = [str(one.metavar) if one.required else f"[{one.metavar}]" for one in arguments]
    yield f'.SS "inplace {" ".join([name, *words])}"'
    paragraphs = re.split(r"\n\s*\n", (command.help or "").strip())
    for number, paragraph in enumerate(paragraphs):
        yield from ([".PP"] if number else []) + [_text(paragraph)]
    context = typer.Context(command)
    for option in command.params:
        described = option.get_help_record(context) if option.param_type_name == "option" else None
        if described is not None:  # a hidden option has none
            words, sentence = described
            yield from (".TP", rf"\fB{_text(words)}\fR", _text(sentence))


def _text(words: str) -> str:
    """Return words on one line, as roff prints them."""
    line = " ".join(words.split()).replace("\\", r"\e").replace("-", r"\-")
    return rf"\&{line}" if line.startswith((".", "'")) else line


if __name__ == "__main__":
    PAGE.write_text(man_page())
