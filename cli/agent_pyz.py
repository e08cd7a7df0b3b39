"""
Build the agent as one file: `python -m inplace.cli.agent_pyz` writes dist/inplace-agent.pyz.

The file is a zip that any Python from 3.10 on runs (PEP 441). It holds the agent, the modules of common/ that the agent
imports, and its dependencies, all pure Python, with their licences. An init container copies it into a worker image
that lacks the agent.

The sources are inside, for any Python. Beside them is byte code for the Pythons that built the file (the current one,
and each `--also`), in a folder named after the interpreter's cache tag. The entry point puts that folder first on the
path. Another Python compiles the sources at every start, which takes longer than the rest of the start.

Members are stored and not compressed, because 5,000 starts would inflate them. The same sources and Pythons give the
same bytes.
"""

from __future__ import annotations

import argparse
import ast
import os
import subprocess
import sys
import zipfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import inplace

PACKAGE: Final = Path(inplace.__file__).parent  # agent/ and common/ lie there, in a source tree as in site-packages
SOURCES: Final = PACKAGE.parent
TARGET: Final = Path("dist", "inplace-agent.pyz")
# typing_extensions is structlog's, below Python 3.11.
DEPENDENCIES: Final = ("prometheus_client", "structlog", "typing_extensions")
_SHEBANG: Final = b"#!/usr/bin/env python3\n"
_DATE: Final = (1980, 1, 1, 0, 0, 0)  # the zip format's first; a build's date would make every build differ
_MODE: Final = 0o100644 << 16
# Any Python has to read this part, also one that is too old for the rest: no f-strings, no annotations.
_ENTRY: Final = b"""\
import sys

if sys.version_info < (3, 10):
    sys.stderr.write(
        "inplace-agent: expected Python 3.10 or newer in this container, saw %s (%s); use an image with a newer one, "
        "put inplace-agent into it (inject --agent-in-image), or wait without it (--barrier probe)\\n"
        % (sys.version.split()[0], sys.executable)
    )
    sys.exit(2)  # ExitCode.CONFIG
sys.path.insert(0, sys.path[0] + "/" + sys.implementation.cache_tag)  # byte code, where there is some for this Python
if sys.version_info < (3, 11):
    from inplace.common.bare.py310 import install

    install()
from inplace.agent.main import main

sys.exit(main())
"""
# Run by each Python that byte code is made for: source on standard input, byte code on standard output. The header says
# that nobody checks it against a source (PEP 552).
_COMPILER: Final = """
import ast, importlib.util, marshal, sys
for name, source in ast.literal_eval(sys.stdin.read()):
    code = compile(source, name, "exec", dont_inherit=True, optimize=0)
    header = importlib.util.MAGIC_NUMBER + (1).to_bytes(4, "little") + importlib.util.source_hash(source)
    print(ascii((f"{sys.implementation.cache_tag}/{name}c", header + marshal.dumps(code))))
"""
COMPILE_S_MAX: Final = 120.0


class BuildError(Exception):
    """The file cannot be built; the message says what was expected and what was seen."""


def build(target: Path = TARGET, pythons: Sequence[str] = (sys.executable,)) -> Path:
    """Write the file and return its path.

    Args:
        target: the file to write.
        pythons: interpreters to make byte code for.

    Raises:
        BuildError: a Python cannot be run, or the target cannot be written.
    """
    sources = {name: path.read_bytes() for name, path in _sources()}
    members = dict(sources)
    for python in pythons:
        members |= _compiled(python, sources)
    members |= {name: path.read_bytes() for name, path in _licences()}
    members["__main__.py"] = _ENTRY
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        _write(target, members)
    except OSError as error:
        raise BuildError(f"expected to write {target}, saw: {error}") from error
    return target


@contextmanager
def program_folder() -> Iterator[Path]:
    """Give a folder in which `inplace-agent` is the file, for a PATH; the file is built for it.

    Raises:
        BuildError: it cannot be built.
    """
    with TemporaryDirectory(prefix="inplace-programs-") as folder:
        yield build(Path(folder) / "inplace-agent").parent


def _sources() -> Iterator[tuple[str, Path]]:
    """Yield (name in the file, path) of every module: the agent's, those of common/ that it reaches, and its deps'."""
    reached = set((PACKAGE / "agent").rglob("*.py")) | {
        PACKAGE / "common" / "bare" / "py310.py",
        PACKAGE / "__init__.py",
        PACKAGE / "rank_file.py",  # a training script that has this file in its PYTHONPATH can say its steps
        PACKAGE / "saving.py",
        PACKAGE / "standby.py",
    }
    unread = set(reached)
    while unread:
        found = set(_imported(unread.pop())) - reached
        reached |= found
        unread |= found
    for path in reached:
        yield path.relative_to(SOURCES).as_posix(), path
    for dependency in DEPENDENCIES:
        for file in distribution(dependency).files or ():
            if file.suffix == ".py" and "tests" not in file.parts:
                yield file.as_posix(), Path(str(file.locate()))


def _imported(path: Path) -> Iterator[Path]:
    """Yield the files of common/ that a module imports wherever it does, with their packages' own."""
    for node in ast.walk(ast.parse(path.read_bytes())):
        names = []
        if isinstance(node, ast.ImportFrom) and node.module is not None and node.level == 0:
            names = [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        for name in names:
            parts = name.split(".")
            if parts[:2] != ["inplace", "common"]:
                continue
            for end in range(1, len(parts) + 1):
                stem = SOURCES.joinpath(*parts[:end])
                yield from (file for file in (stem / "__init__.py", stem.with_suffix(".py")) if file.is_file())


def _licences() -> Iterator[tuple[str, Path]]:
    yield "LICENSE", _our_licence()
    for dependency in DEPENDENCIES:
        for file in distribution(dependency).files or ():
            if "licenses" in file.parts:
                yield file.as_posix(), Path(str(file.locate()))


def _our_licence() -> Path:
    """Return the file that the installed package holds, else the source tree's.

    Raises:
        BuildError: there is none.
    """
    with suppress(PackageNotFoundError):  # in an image's build
        for file in distribution("inplace").files or ():
            if file.parts[-2:] == ("licenses", "LICENSE"):
                return Path(str(file.locate()))
    beside = SOURCES / "LICENSE"  # AFTER that: beside an installed package it is some other package's
    if beside.is_file():
        return beside
    raise BuildError(f"expected the file LICENSE in {SOURCES} or in the installed package, saw none; install it anew")


def _compiled(python: str, sources: Mapping[str, bytes]) -> dict[str, bytes]:
    """Return byte code by name, made by one interpreter."""
    command = [python, "-I", "-S", "-c", _COMPILER]
    environment = os.environ | {"PYTHONHASHSEED": "0"}  # the order of a set's members is part of the byte code
    text = ascii(sorted(sources.items()))
    try:
        done = subprocess.run(
            command, input=text, env=environment, capture_output=True, text=True, timeout=COMPILE_S_MAX, check=True
        )
    except (OSError, subprocess.SubprocessError) as error:
        said = getattr(error, "stderr", None) or error
        raise BuildError(f"expected {python} to be a Python that compiles the agent, saw: {said}") from error
    return dict(ast.literal_eval(line) for line in done.stdout.splitlines())


def _write(target: Path, members: Mapping[str, bytes]) -> None:
    """Write the zip beside the target and move it there in one step."""
    fresh = target.with_suffix(".new")
    with fresh.open("wb") as file:
        file.write(_SHEBANG)
        with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
            for name in sorted(members):
                info = zipfile.ZipInfo(name, _DATE)
                info.external_attr = _MODE
                archive.writestr(info, members[name])
    fresh.chmod(0o755)
    fresh.replace(target)


def main(arguments: Iterable[str] | None = None) -> int:
    """Build the file; return the exit code."""
    parser = argparse.ArgumentParser(description="Build the agent as one file.")
    parser.add_argument("--output", type=Path, default=TARGET, help="path of the file to write")
    parser.add_argument(
        "--also", action="append", default=[], metavar="PYTHON", help="also add byte code for this interpreter"
    )
    options = parser.parse_args(None if arguments is None else list(arguments))
    try:
        path = build(options.output, [sys.executable, *options.also])
    except BuildError as error:
        print(f"agent-pyz: {error}", file=sys.stderr)
        return 1
    print(f"{path}: {path.stat().st_size:,} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
