"""
Split a container's command into the steps of its shell's text, as far as that is possible without a shell. Pure.

What is not understood is left out: the caller finds too little in it, and nothing that is not there.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

SHELLS: Final = ("sh", "bash", "dash", "ash", "zsh", "ksh")
_VALUES: Final = frozenset(("pipefail", "errexit", "nounset", "xtrace"))  # of `-o`
TEXT_CHARS_MAX: Final = 20_000  # a longer script is data
_SEPARATORS: Final = frozenset(("&&", "||", ";", "\n", "|", "&", ";;", "(", ")"))
_OPENING: Final = frozenset(("if", "while", "until", "for", "case"))
_CLOSING: Final = frozenset(("fi", "done", "esac"))
_SKIPPED: Final = frozenset(("then", "do", "else", "elif", "{", "}", "!", "sudo", "exec", "command", "time"))
_ASSIGNMENT: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*=")
_COMMENT: Final = re.compile(r"(?:^|(?<=\s))#.*$", re.MULTILINE)
_REDIRECTION: Final = re.compile(r"[<>&]*[<>][<>&|]*$")
_PUNCTUATION: Final = re.compile(r"[();|&\n]+$")
_EXITS_ON_ERROR: Final = re.compile(r"-[A-Za-z]*e[A-Za-z]*$")


@dataclass(frozen=True, slots=True)
class Step:
    """One command of a container.

    Args:
        words: the program and its arguments.
        folder: where it runs, "" for unknown.
        is_decisive: the container fails if it fails; a condition or `||` beside it makes it harmless.
    """

    words: tuple[str, ...]
    folder: str
    is_decisive: bool

    @property
    def program(self) -> str:
        """Return the program's name without its folder."""
        return self.words[0].rpartition("/")[2]


def steps_of(words: Sequence[str], folder: str) -> list[Step]:
    """Return the steps of a command line: those of a shell's text, or the command itself."""
    if not words:
        return []
    if words[0].rpartition("/")[2] not in SHELLS:
        return [Step(tuple(words), folder, is_decisive=True)]
    options = [word for word in words[1:] if word.startswith(("-", "+"))]
    text = next((word for word in words[1:] if not word.startswith(("-", "+")) and word not in _VALUES), "")
    if len(text) > TEXT_CHARS_MAX or not any("c" in option[1:] and not option.startswith("--") for option in options):
        return []
    return _steps_of_text(text, folder, exits_on_error=any(map(_EXITS_ON_ERROR.match, options)))


def _steps_of_text(text: str, folder: str, *, exits_on_error: bool) -> list[Step]:
    parts = _parts(text)
    if parts is None:
        return []
    steps, depth, before = list[Step](), 0, ";"
    for number, (words, after) in enumerate(parts):
        opened = sum(word in _OPENING for word in words[:1])
        closed = sum(word in _CLOSING for word in words[:1])
        while words and (words[0] in _SKIPPED or words[0] in _OPENING or _ASSIGNMENT.match(words[0])):
            words = words[1:]
        depth = max(0, depth + opened - closed)
        is_conditional = (
            depth > 0 or before == "||" or after in ("||", "|", "&") or (before == "&&" and _is_test(steps))
        )
        is_last = not any(left for left, _ in parts[number + 1 :])
        before = after
        if not words or words[0] in _CLOSING:
            continue
        if words[0] == "set":
            exits_on_error = exits_on_error or any(map(_EXITS_ON_ERROR.match, words[1:])) or "errexit" in words
        elif words[0] == "cd" and len(words) == 2:
            folder = words[1] if words[1].startswith("/") else ""
        is_decisive = not is_conditional and (exits_on_error or is_last or after == "&&")
        steps.append(Step(tuple(words), folder, is_decisive=is_decisive))
    return steps


def _is_test(steps: Sequence[Step]) -> bool:
    return bool(steps) and steps[-1].program in ("[", "[[", "test", "grep", "command", "false")


def _parts(text: str) -> list[tuple[list[str], str]] | None:
    """Return the words between separators, each with the separator behind it; None where that is not sure."""
    lexer = shlex.shlex(_COMMENT.sub("", text.replace("\\\n", " ")), posix=True, punctuation_chars="();<>|&\n")
    lexer.whitespace, lexer.whitespace_split, lexer.commenters = " \t\r", True, ""
    parts, words, is_redirected = list[tuple[list[str], str]](), list[str](), False
    try:
        for token in lexer:
            if token.startswith("<<"):
                return None  # the lines of a document are no commands
            if _REDIRECTION.match(token):
                words = words[:-1] if words and words[-1].isdigit() else words
                is_redirected = True
            elif _PUNCTUATION.match(token):
                bare = token.strip("\n") or "\n"
                parts.append((words, bare if bare in _SEPARATORS else ";"))
                words, is_redirected = [], False
            elif is_redirected:
                is_redirected = False
            else:
                words.append(token)
    except ValueError:  # an open quote
        return None
    return [*parts, (words, "\n")]
