"""
Say in words why a worker's command cannot be executed: which file, what is wrong with it, how to mend it.

The kernel says "No such file or directory" of a script whose first line names a missing interpreter, and "Exec format
error" of much else. Loaded when an execution failed.

Source: execve(2), "Interpreter scripts"; elf(5); include/uapi/linux/elf-em.h.
"""

from __future__ import annotations

import os
from contextlib import suppress

from inplace.agent.settings.command import EPOCH, PROGRESS_DIR, find_program
from inplace.agent.shared_file import write_shared
from inplace.common.bare.typed import TYPE_CHECKING, Final, Mapping

if TYPE_CHECKING:
    from typing import Literal

FIRST_BYTES: Final = 4096
LINE_CHARS_MAX: Final = 100
WORDS_BYTES_MAX: Final = 1024  # inplace/last_words.py's
HEADERS_MAX: Final = 64  # of a program that are looked at
_MACHINES: Final = {3: "i686", 40: "arm", 62: "x86_64", 183: "aarch64", 243: "riscv64", 21: "ppc64le", 22: "s390x"}
_INTERPRETER: Final = 3  # PT_INTERP
_BYTE_ORDER_MARK: Final = b"\xef\xbb\xbf"


def program_problem(name: str, env: Mapping[str, str], error: OSError) -> str:
    """Return what is wrong, in one line.

    Args:
        name: the command's first word.
        env: where it was to run.
        error: of the execution.
    """
    path = find_program(name, env)
    if path is None:
        return f"cannot execute {name!r}: {_missing(name, env)}"
    return f"cannot execute {path!r}: {_problem_of(path, env) or error.strerror or error}"


def leave_words(own: Mapping[str, str], problem: str) -> None:
    """Leave them as the last words of the run, where the agent looks for a rank's exception (inplace/last_words.py).

    They are told when the run has ended, which is at once.

    Args:
        own: what the run's environment has beside the container's.
        problem: the words.
    """
    folder = own.get(PROGRESS_DIR, "")
    if folder:
        line = f"v1 {own.get(EPOCH) or '-'} - {problem}".encode("utf-8", "replace")[: WORDS_BYTES_MAX - 1]
        with suppress(OSError):  # the log has them
            write_shared(f"{folder}/.pid-{os.getpid()}.error", line + b"\n")


def _missing(name: str, env: Mapping[str, str]) -> str:
    if name.endswith("\r"):
        return "its name ends with a carriage return: save the manifest with Unix line ends"
    if "/" not in name:
        return f"PATH ({env.get('PATH', os.defpath)}) has no such program"
    if os.path.isdir(name):  # noqa: PTH112 - pathlib costs 3 ms
        return "it is a folder"
    return "there is no such file"


def _problem_of(path: str, env: Mapping[str, str]) -> str:
    """Return what is wrong with a file; "" if nothing is seen."""
    if not os.access(path, os.X_OK):
        mode = os.stat(path).st_mode & 0o7777  # noqa: PTH116
        on = "; chmod +x it, also in the image" if not mode & 0o111 else f" for user {os.geteuid()}"
        return f"it is not executable (mode {mode:04o}){on}"
    try:
        with open(path, "rb") as file:  # noqa: PTH123
            first = file.read(FIRST_BYTES)
    except OSError:
        return ""
    if first.startswith(b"#!"):
        return _of_script(first, env)
    if first.startswith(b"\x7fELF"):
        return _of_elf(first)
    if not first:
        return "it is empty"
    if first.startswith(_BYTE_ORDER_MARK):
        return "it begins with a byte order mark: save it as UTF-8 without one"
    return "its first line does not begin with #!, and it is no program of this system"


def _of_script(first: bytes, env: Mapping[str, str]) -> str:
    line = first[2:].partition(b"\n")[0]
    words = os.fsdecode(line).split()
    if not words:
        return "its first line names no interpreter"
    if line.endswith(b"\r"):
        return "its first line ends with a carriage return: save it with Unix line ends (sed -i 's/\\r$//')"
    interpreter = words[0]
    if not os.path.isfile(interpreter):  # noqa: PTH113
        return f"its first line names {interpreter[:LINE_CHARS_MAX]!r}, which does not exist"
    if not os.access(interpreter, os.X_OK):
        return f"its first line names {interpreter[:LINE_CHARS_MAX]!r}, which is not executable"
    if interpreter.rpartition("/")[2] == "env":
        asked = [word for word in words[1:] if not word.startswith("-") and "=" not in word]
        if asked and find_program(asked[0], env) is None:
            return f"its first line asks for {asked[0][:LINE_CHARS_MAX]!r}, which PATH does not have"
    return ""


def _of_elf(first: bytes) -> str:
    order: Literal["little", "big"] = "little" if first[5:6] == b"\x01" else "big"
    own, machine = os.uname().machine, int.from_bytes(first[18:20], order)
    if _MACHINES.get(machine, own) != own:
        return f"it is a program for {_MACHINES[machine]}, and this node is {own}: build the image for {own}"
    loader = _loader(first)
    if loader and not os.path.exists(loader):  # noqa: PTH110
        return f"it needs {loader!r}, which the image does not have: it was built for another C library"
    return ""


def _loader(first: bytes) -> str:
    """Return the program that the kernel loads beside one of 64 bits; "" where its beginning does not say it."""
    if first[4:6] != b"\x02\x01":
        return ""
    table, size, count = (
        int.from_bytes(first[at : at + length], "little") for at, length in ((32, 8), (54, 2), (56, 2))
    )
    for entry in (table + size * number for number in range(min(count, HEADERS_MAX))):
        kind, begin, length = (
            int.from_bytes(first[entry + at : entry + at + width], "little") for at, width in ((0, 4), (8, 8), (32, 8))
        )
        if kind == _INTERPRETER:
            return os.fsdecode(first[begin : begin + length].rstrip(b"\0"))
    return ""
