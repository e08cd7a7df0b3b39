"""Find the modules of the agent's image and their licences, and compile them."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import Final

import inplace
from images.build_once import BuildFailed

PACKAGE: Final = Path(inplace.__file__).parent  # agent/ and common/ lie there, in a source tree as in site-packages
SOURCES: Final = PACKAGE.parent
COMPILE_S_MAX: Final = 120.0
# Run by a Python of its own: source on standard input, byte code on standard output. The header says that nobody checks
# it against a source (PEP 552).
_COMPILER: Final = """
import ast, importlib.util, marshal, sys
for name, source in ast.literal_eval(sys.stdin.read()):
    code = compile(source, name, "exec", dont_inherit=True, optimize=0)
    header = importlib.util.MAGIC_NUMBER + (1).to_bytes(4, "little") + importlib.util.source_hash(source)
    print(ascii((f"{name}c", header + marshal.dumps(code))))
"""


def sources_of(dependencies: Iterable[str]) -> Iterator[tuple[str, Path]]:
    """Yield (name, path) of every module: the agent's, those of common/ that it reaches, and its dependencies'."""
    reached = {PACKAGE / "__init__.py", *(PACKAGE / "agent").rglob("*.py")}
    unread = set(reached)
    while unread:
        found = set(_imported(unread.pop())) - reached
        reached |= found
        unread |= found
    for path in reached:
        yield path.relative_to(SOURCES).as_posix(), path
    for dependency in dependencies:
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


def licences_of(dependencies: Iterable[str]) -> Iterator[tuple[str, Path]]:
    """Yield (name, path) of our licence and those of the dependencies."""
    yield "LICENSE", _our_licence()
    for dependency in dependencies:
        for file in distribution(dependency).files or ():
            if "licenses" in file.parts:
                yield file.as_posix(), Path(str(file.locate()))


def _our_licence() -> Path:
    """Return the file that the installed package holds, else the source tree's.

    Raises:
        BuildFailed: there is none.
    """
    with suppress(PackageNotFoundError):  # in an image's build
        for file in distribution("inplace").files or ():
            if file.parts[-2:] == ("licenses", "LICENSE"):
                return Path(str(file.locate()))
    beside = SOURCES / "LICENSE"  # AFTER that: beside an installed package it is some other package's
    if beside.is_file():
        return beside
    raise BuildFailed(f"expected the file LICENSE in {SOURCES} or in the installed package, saw none; install it anew")


def compiled(sources: Mapping[str, bytes]) -> dict[str, bytes]:
    """Return byte code by name, made by this Python; the same sources give the same bytes.

    Raises:
        BuildFailed: a source cannot be compiled.
    """
    command = [sys.executable, "-I", "-S", "-c", _COMPILER]
    environment = os.environ | {"PYTHONHASHSEED": "0"}  # the order of a set's members is part of the byte code
    text = ascii(sorted(sources.items()))
    try:
        done = subprocess.run(
            command, input=text, env=environment, capture_output=True, text=True, timeout=COMPILE_S_MAX, check=True
        )
    except (OSError, subprocess.SubprocessError) as error:
        said = getattr(error, "stderr", None) or error
        raise BuildFailed(f"expected {sys.executable} to compile the agent, saw: {said}") from error
    return dict(ast.literal_eval(line) for line in done.stdout.splitlines())
