"""Build programs from a checked-in go.mod once, and keep them in a cache.

Guarantees: what is in the cache was built from exactly the sources its folder is named after, by the compiler that is
here now; the rest is `images.build_once`'s.

A folder's go.mod pins the newest Kubernetes, Kueue or Trainer. `WORLD=1.36` takes the folder's 1.36.mod in its place,
with 1.36.sum: the tests then build and run older ones.
"""

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from images.build_once import BuildFailed, MissingComponent, build_once, cache_dir, run_nicely

GO_MINIMUM = (1, 26)
"""What Kubernetes 1.36 and 1.37 themselves require."""

MOD: Final = f"{os.environ.get('WORLD') or 'go'}.mod"
MOD_SOURCES: Final = (MOD, f"{MOD[:-4]}.sum")
"""The files of a folder that pin the versions of this world."""

MOD_FLAGS: Final = () if MOD == "go.mod" else (f"-modfile={MOD}",)
"""What `go` has to be told to read them."""

GO_TIMEOUT_S = 60.0
"""For `go version`, which may fetch a newer toolchain when GOTOOLCHAIN allows it."""

HOW_TO_GET_GO = "Install Go 1.26 or newer from https://go.dev/dl/ and put it on PATH"


DOWNLOAD_S_MAX = 600.0
"""For one module. Kueue's has 20 MB; a download that takes longer hangs."""


def module_folder(directory: Path, module: str, flags: Sequence[str] = ()) -> Path:
    """
    Return the folder of a module's sources, in the version that go.mod of `directory` pins and go.sum vouches for.

    Args:
        directory: of go.mod.
        module: its path, without a version.
        flags: `-modfile=FILE` names another file than go.mod.

    Raises:
        MissingComponent: Go is absent.
        BuildFailed: the module is in no cache and could not be downloaded.
    """
    command = ("go", "mod", "download", *flags, "-json", module)
    try:
        said = subprocess.run(
            command, cwd=directory, capture_output=True, text=True, timeout=DOWNLOAD_S_MAX, check=False
        )
    except FileNotFoundError as error:
        raise MissingComponent(f"expected the Go compiler `go` on PATH, found none. {HOW_TO_GET_GO}.") from error
    if said.returncode != 0:
        raise BuildFailed(f"expected {' '.join(command)} to succeed in {directory}: {said.stdout}{said.stderr}")
    return Path(json.loads(said.stdout)["Dir"])


def go_install(folder: Path, package: str, linker_flags: str, *, expected: str = "the Go compiler `go`") -> None:
    """
    Build one program of a public module into a folder; Go's checksum database vouches for it.

    Args:
        folder: for the program.
        package: `PATH@VERSION`.
        linker_flags: as `go build -ldflags` has them.
        expected: on PATH; the error without Go says it.

    Raises:
        MissingComponent: Go is absent.
        BuildFailed: the compiler refused; its output went to stderr.
    """
    if shutil.which("go") is None:
        raise MissingComponent(f"expected {expected} on PATH, found none. {HOW_TO_GET_GO}.")
    run_nicely(
        ("go", "install", "-trimpath", f"-ldflags={linker_flags}", package),
        directory=folder,
        environment={"CGO_ENABLED": "0", "GOBIN": str(folder), "GOFLAGS": "-mod=mod"},
    )


def print_made(name: str, *makers: Callable[[], object]) -> int:
    """Print what each maker returns, as a command does; say what is missing and return 1 when it cannot be had."""
    try:
        for make in makers:
            print(make())
    except (MissingComponent, BuildFailed) as error:
        print(f"{name}: {error}", file=sys.stderr)
        return 1
    return 0


@dataclass(frozen=True, slots=True)
class GoBuild:
    """One `go build`: its packages, its flags, and its environment."""

    packages: tuple[str, ...]
    flags: tuple[str, ...]
    environment: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Replacement:
    """
    A constant of another project's program that no flag sets; the linked program gets another of the same length.

    Args:
        old: a text that the program has once.
    """

    program: str
    old: str
    new: str

    def carry_out(self, folder: Path) -> None:
        """Change the program in `folder`."""
        file = folder / self.program
        old, new, content = self.old.encode(), self.new.encode(), file.read_bytes()
        if len(old) != len(new) or content.count(old) != 1:
            raise BuildFailed(f"expected {self.old!r} once in {file}, and as long as {self.new!r}")
        file.write_bytes(content.replace(old, new))


@dataclass(frozen=True, slots=True)
class GoModule:
    """
    A folder with go.mod and go.sum whose packages become programs of one cached folder.

    Args:
        name: of the folder below the cache, and in messages.
        directory: where go.mod is.
        sources: the files that the build depends on.
        builds: run one after the other.
        cost: what a first build takes, for the one who waits.
        hint: another solution for a machine without Go.
        replacements: constants that the programs get in place of their own.
    """

    name: str
    directory: Path
    sources: tuple[str, ...]
    builds: tuple[GoBuild, ...]
    cost: str
    hint: str = ""
    replacements: tuple[Replacement, ...] = ()

    def build(self) -> Path:
        """
        Return the folder of the programs, after building them when they are not cached.

        Raises:
            MissingComponent: Go is absent or too old.
            BuildFailed: the compiler refused; its output went to stderr.
        """
        return build_once(self.cached_path(self._go_version()), self._compile)

    def cached_path(self, go_version: str) -> Path:
        """Return where the programs of these sources, flags and compiler live, whether or not they exist yet."""
        builds = (
            word for build in self.builds for word in (*build.packages, *build.flags, *map(str, build.environment))
        )
        replaced = (word for each in self.replacements for word in (each.program, each.old, each.new))
        digest = hashlib.sha256("\0".join((go_version, *builds, *replaced)).encode())
        for name in self.sources:
            digest.update(name.encode() + b"\0" + (self.directory / name).read_bytes())
        return cache_dir() / self.name / digest.hexdigest()[:16] / "bin"

    def _go_version(self) -> str:
        """Return what `go version` says (release and platform) once it is known to be new enough."""
        how = f"{HOW_TO_GET_GO}{self.hint}."
        try:
            said = subprocess.run(
                ("go", "version"), cwd=self.directory, capture_output=True, text=True, timeout=GO_TIMEOUT_S, check=False
            )
        except FileNotFoundError as error:
            raise MissingComponent(f"expected the Go compiler `go` on PATH, found none. {how}") from error
        found = re.search(r"\bgo(\d+)\.(\d+)", said.stdout)
        if said.returncode != 0 or found is None or (int(found[1]), int(found[2])) < GO_MINIMUM:
            raise MissingComponent(f"expected Go 1.26 or newer, saw {(said.stdout + said.stderr).strip()!r}. {how}")
        return said.stdout.strip()

    def _compile(self, folder: Path) -> None:
        print(f"{self.name}: building {', '.join(self._programs())} ({self.cost})", file=sys.stderr, flush=True)
        for build in self.builds:
            command = ("go", "build", *build.flags, "-o", f"{folder}/", *build.packages)
            run_nicely(command, directory=self.directory, environment=build.environment)
        for replacement in self.replacements:
            replacement.carry_out(folder)

    def _programs(self) -> Sequence[str]:
        return [
            package.rpartition("/")[2] if package != "." else self.name for b in self.builds for package in b.packages
        ]


def pinned(file: Path, module: str) -> str:
    """Return the version of a module that a go.mod file pins, such as v1.37.2."""
    found = re.search(rf"^\s*(?:require )?{re.escape(module)} (v\S+)", file.read_text(), re.MULTILINE)
    assert found is not None, f"{file} names no {module}"
    return found[1]
