"""Check PyTorch's launcher where an agent restarts the group. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Final

from inplace.common.injection.finding import Finding
from inplace.common.injection.pod_roles import Container

VARIABLE: Final = "PET_MAX_RESTARTS"  # torchrun's option by its environment
_MODULES: Final = ("torch.distributed.run", "torch.distributed.launch")
_SCRIPT_FOLLOWS: Final = ("-m", "--module", "--no-python", "--no_python")
# argparse takes every beginning of --max-restarts that no other option has.
_OPTION: Final = re.compile(r"--max[-_]r[a-z]*")
_QUOTES: Final = re.compile(r"['\"\\]")  # of a shell's text
_BETWEEN: Final = re.compile(r"[\s;&|]+")  # its words
_REFERENCE: Final = re.compile(r"\$[({]?(\w+)[)}]?")


def check_launcher(worker: Container) -> Iterator[Finding]:
    """Yield a torchrun that restarts its workers by itself, by an option or by its environment."""
    own = _own_words([part for word in worker.words for part in _parts(word)])
    if own is None:
        return
    env = worker.values
    given = _given(own)
    path = f"{worker.path}.command"
    if given is None:
        given, path = env.get(VARIABLE, ""), worker.path_of(VARIABLE)
    value = _REFERENCE.sub(lambda match: env.get(match[1], match[0]), given)
    if value.isdecimal() and int(value) > 0:
        fix = "set it to 0, torchrun's default: a failed worker then ends torchrun, and the group restarts in place"
        yield Finding("torchrun-restarts", path, f"torchrun --max-restarts={int(value)}", "0", fix)


def _parts(word: str) -> list[str]:
    """Return the words of a shell's text, or the word itself."""
    return [part for part in _BETWEEN.split(_QUOTES.sub("", word)) if part] if " " in word else [word]


def _own_words(words: Sequence[str]) -> list[str] | None:
    """Return torchrun's options, without those of the script that it starts; None where there is no torchrun."""
    for place, word in enumerate(words):
        if word.rpartition("/")[2] == "torchrun" or word in _MODULES:  # behind -m, or in the text behind -c
            own: list[str] = []
            for option in words[place + 1 :]:
                if option.endswith(".py") or option in _SCRIPT_FOLLOWS:
                    break
                own.append(option)
            return own
    return None


def _given(words: Sequence[str]) -> str | None:
    """Return the value of the last --max-restarts; None without one."""
    given = None
    for word, after in zip(words, [*words[1:], ""], strict=False):
        option, is_one_word, value = word.partition("=")
        if _OPTION.fullmatch(option):
            given = value if is_one_word else after
    return given
