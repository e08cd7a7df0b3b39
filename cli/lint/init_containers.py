"""
Find init containers that fail, or lose what they serve, when they run again. Pure.

A restart in place of depth `containers` runs every init container again, in a file system of its own that is new, over
volumes that are kept. Depth `process` does it for clean containers, from the second failure in a row on; a supervisor
never does. This reads commands as far as that is possible without a shell: an image's own program is not judged, git's
apart, and no script with a condition or a loop, which may look first whether it ran before.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise, takewhile
from typing import Final, NamedTuple

from inplace.common.injection.container_resources import agents_own
from inplace.common.injection.depth import gcsfuse_volumes, run_before_each_try
from inplace.common.injection.finding import Finding
from inplace.common.injection.pod_roles import Container, Member
from inplace.common.wire import names as wire

SHELLS: Final = ("sh", "bash", "dash", "ash", "zsh", "ksh")
TEXT_CHARS_MAX: Final = 20_000  # a longer script is data
VALUE_CHARS_MAX: Final = 256  # of a variable that is put in: 10,000 times in one text it makes 2.5 MB, for a moment
_WORDS_SHOWN: Final = 80
_ONCE_PER_POD: Final = f"{wire.RESTART}: depth=process,clean-after=0"
_GITS: Final = ("-c", "-C", "--no-pager")  # options of git's own, which come before its verb
_VARIABLE: Final = re.compile(r"\$(?:\{(\w+)\}|\((\w+)\)|(\w+))")  # the shell's, and kubelet's in parentheses
_BRANCHES: Final = re.compile(r"\b(?:if|while|until|for|case|test|grep|command)\b|\[|<<")
_EXITS_ON_ERROR: Final = re.compile(r"(?:^|\s)-[A-Za-z]*e[A-Za-z]*\b|errexit")
_COMMENT: Final = re.compile(r"(?:^|(?<=\s))#.*$", re.MULTILINE)
_PREFIX: Final = re.compile(r"sudo|exec|time|!|[{}]|[A-Za-z_]\w*=.*")  # of a command


def runs_again(member: Member) -> list[Container]:
    """Return the user's init containers that each restart in place runs again."""
    if not _restarts_containers(member):
        return []
    ours = agents_own(member)
    return [one for one in member.inits if one not in ours]


def check_init_containers(member: Member) -> Iterator[Finding]:
    """Yield what an init container does that works once only."""
    if not _restarts_containers(member) and not _may_clean(member):
        return
    for container in run_before_each_try(member):
        for step in _not_repeatable(container):
            found = f"`{' '.join(step.words)[:_WORDS_SHOWN]}`, which fails when it has been done"
            fix = f"{_ONCE[step.program].cure}; or let it run once per Pod: {_ONCE_PER_POD}"
            yield Finding("init-not-repeatable", f"{container.path}.command", found, "a command to repeat", fix)
    volumes = gcsfuse_volumes(member)
    if volumes:
        found = f"volumes of Cloud Storage FUSE ({', '.join(volumes)})"
        fix = f"keep the containers ({_ONCE_PER_POD}; or --mode supervisor), or copy the data from the bucket"
        yield Finding("fuse-sidecar", f"{member.pod_path}.volumes", found, "volumes that outlive a container", fix)


def init_sentence(member: Member) -> str:
    """Say when init containers run; "" for none."""
    again = runs_again(member)
    if again:
        names = ", ".join(one.name for one in again)
        return f"Each restart in place runs the init containers again: {names}. Their volumes keep what is in them."
    names = ", ".join(one.name for one in run_before_each_try(member))
    clean = ", and again for clean containers after failures in a row" if _may_clean(member) else ""
    return f"The init containers run once per Pod{clean}: {names}." if names and member.agent is not None else ""


def _restarts_containers(member: Member) -> bool:
    agent = member.sidecar_agent if member.place == "sidecar" else None
    return agent is not None and agent.restart_depth != wire.DEPTH_PROCESS


def _may_clean(member: Member) -> bool:
    """Say whether a worker that keeps failing gets clean containers, init containers among them."""
    agent = member.sidecar_agent if member.place == "sidecar" else None
    return agent is not None and agent.values.get("CLEAN_AFTER_FAILURES") != "0"


class Step(NamedTuple):
    """One command of a container.

    Args:
        words: the program and its arguments.
        folder: where it runs, "" for unknown.
        is_decisive: the container fails if it fails.
    """

    words: tuple[str, ...]
    folder: str
    is_decisive: bool = True

    @property
    def program(self) -> str:
        """Return the program's name without its folder."""
        return self.words[0].rpartition("/")[2]


def steps_of(words: Sequence[str], folder: str) -> list[Step]:
    """Return the steps of a command line: those of a shell's text, or the command itself; none that is not sure."""
    if not words:
        return []
    if words[0].rpartition("/")[2] not in SHELLS:
        return [Step(tuple(words), folder)]
    options = list(takewhile(lambda word: not re.fullmatch("-[a-zA-Z]*c[a-zA-Z]*", word), words[1:]))
    option, text = [*words[len(options) + 1 :], "", ""][:2]
    if len(text) > TEXT_CHARS_MAX or _BRANCHES.search(text):
        return []
    exits_on_error = any(map(_EXITS_ON_ERROR.search, (*options, option))) or "set -e" in text or "errexit" in text
    try:
        parts = [part for part in _parts(text) if part[0]]
    except ValueError:  # an open quote
        return []
    steps = list[Step]()
    for place, (command, before, after) in enumerate(parts):
        if command[0] == "cd" and len(command) == 2:
            folder = command[1] if command[1].startswith("/") else ""
        is_harmless = "||" in (before, after) or after in ("|", "&")
        is_decisive = not is_harmless and (exits_on_error or place == len(parts) - 1 or after == "&&")
        steps.append(Step(command, folder, is_decisive))
    return steps


def _parts(text: str) -> Iterator[tuple[tuple[str, ...], str, str]]:
    """Yield the words between separators, with the separators before and behind them.

    Raises:
        ValueError: a quote is open.
    """
    lexer = shlex.shlex(_COMMENT.sub("", text.replace("\\\n", " ")), posix=True, punctuation_chars="();<>|&\n")
    lexer.whitespace, lexer.whitespace_split, lexer.commenters = " \t\r", True, ""
    words, before = list[str](), ";"
    for token in (*lexer, "\n"):
        if not token or token.strip("();|&\n"):
            words.append(token)
            continue
        command = takewhile(lambda word: not word or word.strip("<>&"), words)
        after = token.strip("\n") or "\n"
        yield _without_prefixes(tuple(command)), before, after
        words, before = [], after


def _without_prefixes(words: tuple[str, ...]) -> tuple[str, ...]:
    while words and _PREFIX.fullmatch(words[0]):
        words = words[1:]
    return words


def _not_repeatable(container: Container) -> Iterator[Step]:
    """Yield the steps that fail a second time in a volume that is kept."""
    mounts = [mount for mount in container.raw.get("volumeMounts") or () if not mount.get("readOnly")]
    kept = [str(mount.get("mountPath", "")).rstrip("/") or "/" for mount in mounts]
    settled = set[str]()  # made or removed in this run: what is below is new every time
    folder = str(container.raw.get("workingDir") or "")
    if _is_git(container) and not folder:
        folder = next(iter(kept), "")  # the image's own: what lies elsewhere nobody would see
    for step in steps_of(_words(container), folder):
        once = _ONCE.get(step.program)
        paths = _paths(step, once.paths(step.words[1:])) if once is not None and step.is_decisive else []
        if any(_is_below(path, kept) and not _is_below(path, settled) for path in paths):
            yield step
        if step.program in ("rm", "mkdir"):
            settled.update(_paths(step, step.words[1:]))


def _words(container: Container) -> list[str]:
    """Return the command with the values of variables that the manifest has; `args` of a git image are git's."""
    values = {name: str(entry["value"]) for name, entry in container.env.items() if entry.get("value") is not None}
    variables = {name: text for name, text in values.items() if len(text) <= VALUE_CHARS_MAX}

    def value(found: re.Match[str]) -> str:
        return variables.get(found[1] or found[2] or found[3], found[0])

    words = [_VARIABLE.sub(value, word) if len(word) <= TEXT_CHARS_MAX else word for word in container.words]
    words = [word if len(word) <= TEXT_CHARS_MAX else "" for word in words]  # a text that is not read anyway
    return ["git", *words] if _is_git(container) else words


def _is_git(container: Container) -> bool:
    """Say whether the image's program is git, as its arguments tell."""
    return not container.raw.get("command") and "clone" in container.words and container.words[0] in ("clone", *_GITS)


def _paths(step: Step, words: Sequence[str]) -> list[str]:
    """Return absolute paths; a relative one without a known folder is none."""
    found = [
        word if word.startswith("/") else f"{step.folder.rstrip('/')}/{word}"
        for word in words
        if word.startswith("/") or (step.folder and not word.startswith(("-", "$")))
    ]
    return [path.rstrip("/") for path in found]


def _is_below(path: str, folders: Iterable[str]) -> bool:
    return any(path == folder or path.startswith(folder.rstrip("/") + "/") for folder in folders)


def _cloned(words: Sequence[str]) -> list[str]:
    """Return where `git clone` puts the repository: its last argument, or the repository's own name."""
    before = list(takewhile(lambda word: word != "clone", words))
    options = ("-b", "--branch", "--depth", "-c", "-o", "--origin", "-j", "--filter")
    arguments = _arguments(words[len(before) + 1 :], options)
    if len(arguments) == 1:
        return [arguments[0].rstrip("/").rpartition("/")[2].removesuffix(".git")]
    return arguments[1:2]


def _keys(words: Sequence[str]) -> list[str]:
    """Return the file that ssh-keygen writes. Where it exists ssh-keygen asks, and nobody answers."""
    return [after for option, after in pairwise(words) if option == "-f"]


def _all(words: Sequence[str]) -> list[str]:
    return _arguments(words, ("-m",))


def _arguments(words: Sequence[str], with_value: Sequence[str]) -> list[str]:
    """Return the words that are no options, nor the values of those that have one."""
    found, skip = list[str](), False
    for word in words:
        if not skip and not word.startswith("-"):
            found.append(word)
        skip = not skip and word in with_value
    return found


@dataclass(frozen=True, slots=True)
class _Once:
    """A program that fails when it runs a second time.

    Args:
        cure: how to write it.
        targets: returns the paths that it makes or removes.
        pardon: the option under which it does not fail, short and long.
    """

    cure: str
    targets: Callable[[Sequence[str]], list[str]] = _all
    pardon: tuple[str, str] = ("", "")

    def paths(self, words: Sequence[str]) -> list[str]:
        """Return the paths of a call that cannot be repeated."""
        short, long = self.pardon
        is_pardoned = short and any(
            word == long or (word.startswith("-") and not word.startswith("--") and short in word) for word in words
        )
        return [] if is_pardoned else self.targets(words)


_ONCE: Final[Mapping[str, _Once]] = {
    "git": _Once(
        "clone only if the folder is not there (`[ -d DIR/.git ] || git clone ...`), or empty it first", _cloned
    ),
    "hg": _Once("clone only if the folder is not there, or empty it first", _cloned),
    "ssh-keygen": _Once("make the key only if it is not there (`[ -f KEY ] || ssh-keygen ...`)", _keys),
    "mkdir": _Once("mkdir -p", pardon=("p", "--parents")),
    "mkfifo": _Once("make it only if it is not there"),
    "ln": _Once("ln -sfn", lambda words: _arguments(words, ())[1:], pardon=("f", "--force")),
    "mv": _Once("move it only if it is there, or copy it", lambda words: _arguments(words, ())[:-1]),
    "rm": _Once("rm -f", pardon=("f", "--force")),
    "rmdir": _Once("remove it only if it is there"),
}
