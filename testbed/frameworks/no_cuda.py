"""
Stand in for CUDA's libraries, which a PyTorch from PyPI links: 4 GB that a machine without a GPU never uses.

PyPI has no PyTorch for Linux without CUDA, and its import loads CUDA's libraries. Here each is a small library of the
same name. It has every function that PyTorch wants from it, and each returns cudaErrorNoDevice: PyTorch finds no
device. Needs gcc and binutils.
"""

import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

from images.build_once import MissingComponent, run_nicely

PROGRAMS = ("gcc", "nm", "objdump")
NO_DEVICE = 100  # cudaErrorNoDevice and CUDA_ERROR_NO_DEVICE
_CUDA = re.compile(r"lib(cu|nccl|nvrtc|nvshmem)\w*\.so\.\d+")
_FUNCTION = re.compile(r"(cu|__cu|nccl|nvrtc|nvshmem)\w*")


def stand_in(libraries: Path) -> None:
    """Make the libraries of CUDA that PyTorch's own, in the same folder, want.

    Args:
        libraries: `torch/lib` of a virtual environment.

    Raises:
        MissingComponent: gcc or binutils is not there.
        BuildFailed: the compiler refused.
    """
    if missing := [program for program in PROGRAMS if shutil.which(program) is None]:
        raise MissingComponent(f"torch is left out: expected gcc and binutils on PATH, saw no {', '.join(missing)}")
    needed: set[str] = set()
    versions: dict[str, str] = {}  # of a symbol, to the library that has it
    functions: set[tuple[str, str]] = set()
    for library in sorted(libraries.glob("lib*.so")):
        needed |= set(_needed(library))
        versions |= dict(_versions(library))
        functions |= set(_wanted(library))
    for name in sorted(needed):
        of_it = {version for version, owner in versions.items() if owner == name}
        # A symbol without version may be in any library that is loaded.
        _make(libraries / name, sorted(function for function in functions if function[1] in (of_it or {""})), of_it)


def _make(library: Path, functions: list[tuple[str, str]], versions: set[str]) -> None:
    """Compile one library."""
    with TemporaryDirectory() as folder:
        source, script = Path(folder) / "stub.c", Path(folder) / "versions"
        source.write_text("".join(f"int {name}(void) {{ return {NO_DEVICE}; }}\n" for name, _ in functions))
        names = {version: "".join(f"{name};" for name, each in functions if each == version) for version in versions}
        script.write_text("".join(f"{version} {{ global: {each} }};\n" for version, each in names.items()))
        words = ["gcc", "-w", "-shared", "-fPIC", str(source), "-o", str(library), f"-Wl,-soname,{library.name}"]
        run_nicely([*words, *([f"-Wl,--version-script={script}"] if versions else [])], directory=Path(folder))


def _needed(library: Path) -> Iterator[str]:
    """Yield the names of CUDA's libraries that one links."""
    yield from (name for name in re.findall(r"NEEDED\s+(\S+)", _output("objdump", "-p", library)) if _CUDA.match(name))


def _versions(library: Path) -> Iterator[tuple[str, str]]:
    """Yield (version, library of CUDA) of each symbol version that one wants."""
    owner = ""
    for line in _output("objdump", "-p", library).splitlines():
        if found := re.match(r"\s+required from (\S+):", line):
            owner = found[1]
        elif _CUDA.match(owner) and (found := re.match(r"\s+0x\w+ 0x\w+ \d+ (\S+)", line)):
            yield found[1], owner


def _wanted(library: Path) -> Iterator[tuple[str, str]]:
    """Yield (name, version or nothing) of each function of CUDA that one does not have itself."""
    for line in _output("nm", "-D", "--undefined-only", library).splitlines():
        name, _, version = line.split()[-1].partition("@")
        if _FUNCTION.match(name):
            yield name, version


def _output(*words: str | Path) -> str:
    return subprocess.run(words, check=True, capture_output=True, text=True).stdout
