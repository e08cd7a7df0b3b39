"""Make the root of the agent's image: agent and guard, and a Python of their own, for any Linux of this architecture.

The same folder is the agent's container and, as an image volume, a folder of the worker's container. Both find it at
/inplace: the volume is mounted there, and in the image itself /inplace is a link to the root. So a manifest needs no
`subPath`, which containerd 2.1 ignores without a word.

    bin/inplace-agent           the agent
    bin/guard -- COMMAND        `inplace-agent guard -- COMMAND`
    bin/copy FOLDER             for an init container, where a node has no image volumes
    lib/entrypoint.so           puts `bin/guard` in front of a program that no manifest names (images/entrypoint.c)
    train/inplace/              what training scripts import, as sources: for the PYTHONPATH of any worker
    bin/python3, lib/           Python (`images.own_python`), the agent's modules beside those of the library
    licenses/, sbom.cdx.json    what is in it
    build-id                    a hash of all the rest; `copy` compares it

The same sources and the same machine give the same bytes.

Usage: python -m images.agent_root FOLDER
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import platform
import subprocess
import sys
import sysconfig
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

from images.agent_modules import PACKAGE, compiled, licences_of, sources_of
from images.build_once import BuildFailed, MissingComponent
from images.lock import ROOTS
from images.own_python import LIBRARY, PREFIX, copy_python, write_modules
from images.sbom import Part, sbom
from inplace.agent.version import VERSION

BUILD_ID: Final = "build-id"
LOCK: Final = Path(__file__).parents[1] / "requirements.lock"

ENTRYPOINT: Final = Path(__file__).with_name("entrypoint.c")
COMPILE: Final = (
    *("-std=c11", "-Os", "-Wall", "-Wextra", "-Werror", "-fPIC", "-fvisibility=hidden", "-shared", "-s"),
    *("-ffreestanding", "-fno-builtin", "-fno-tree-loop-distribute-patterns", "-fno-stack-protector", "-nostdlib"),
    *("-Wl,-z,defs", "-Wl,-z,noexecstack", "-Wl,--build-id=none"),
)
HOW_TO_GET_A_COMPILER: Final = "expected gcc on PATH, found none: apt-get install --no-install-recommends gcc"

TRAIN: Final = "train"
FOR_SCRIPTS: Final = (
    "__init__.py",
    "integrations/__init__.py",
    "integrations/accelerate.py",
    "integrations/checkpoints.py",
    "integrations/lightning.py",
    "integrations/transformers.py",
    "last_words.py",
    "line_file.py",
    "rank_file.py",
    "rank_numbers.py",
    "rank_stacks.py",
    "resume.py",
    "saving.py",
    "standby.py",
)

_MAIN: Final = "from inplace.agent.main import main\n"
PROGRAMS: Final = {
    "inplace-agent": _MAIN,
    "guard": f'{_MAIN}\nsys.argv.insert(1, "guard")\n',
    "copy": "from inplace.agent.start.copy_root import main\n",
}
# -IS: no user folder, no PYTHONPATH or PYTHONHOME of the container, no `site`. The kernel passes one argument only.
_PROGRAM: Final = "#!{prefix}/bin/python3 -IS\nimport sys\n\n{body}sys.exit(main())\n"


def make(folder: Path) -> str:
    """Fill an empty folder and return its build id.

    Raises:
        MissingComponent: this Python or patchelf does not do, or there is no compiler.
        BuildFailed: what went wrong.
    """
    copied = copy_python(folder, compiled)
    dependencies = ROOTS["agent"]
    modules = {name: path.read_bytes() for name, path in sources_of(dependencies)}
    write_modules(folder / LIBRARY, compiled(modules))
    write_modules(folder / TRAIN, {f"inplace/{name}": (PACKAGE / name).read_bytes() for name in FOR_SCRIPTS})
    for name, body in PROGRAMS.items():
        program = folder / "bin" / name
        program.write_text(_PROGRAM.format(prefix=PREFIX, body=body))
        program.chmod(0o755)
    _compile(ENTRYPOINT, folder / "lib" / "entrypoint.so")
    packages = debian_packages(copied)
    licences = dict(licences_of(dependencies)) | _licences_of_packages(packages)
    write_modules(folder / "licenses", {name: path.read_bytes() for name, path in licences.items()})
    parts = [Part.python(platform.python_version()), *packages]
    document = sbom("agent", LOCK.read_text(), VERSION, parts)
    (folder / "sbom.cdx.json").write_text(json.dumps(document, indent=2) + "\n")
    (folder / BUILD_ID).touch()
    _forget_builder(folder)
    build_id = build_id_of(folder)
    (folder / BUILD_ID).write_text(f"{build_id}\n")
    (folder / PREFIX.name).symlink_to(".")
    for path in (folder, *folder.rglob("*")):
        os.utime(path, (0, 0), follow_symlinks=False)
    return build_id


def _compile(source: Path, target: Path) -> None:
    """Compile a library that needs no other; the file's own path is not in it."""
    command = ("gcc", *COMPILE, "-o", str(target.absolute()), source.name)
    try:
        done = subprocess.run(command, cwd=source.parent, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        raise MissingComponent(HOW_TO_GET_A_COMPILER) from None
    if done.returncode:
        raise BuildFailed(f"gcc failed: {done.stderr.strip()}")
    target.chmod(0o644)


def build_id_of(folder: Path) -> str:
    """Return a hash of the names, modes and contents of all files below a folder."""
    digest = hashlib.sha256()
    for path in _files(folder):
        content = path.read_bytes()
        digest.update(f"{path.relative_to(folder)}\0{path.stat().st_mode:o}\0{len(content)}\0".encode() + content)
    return digest.hexdigest()


def debian_packages(files: Iterable[Path]) -> list[Part]:
    """Return the Debian packages that brought some files; [] where no dpkg knows them."""
    names = {name for path in files for name in _installed_names(path)}
    try:
        said = subprocess.run(("dpkg-query", "--search", *sorted(names)), capture_output=True, text=True, check=False)
        owners = sorted({line.partition(": ")[0] for line in said.stdout.splitlines() if ": /" in line})
        known = subprocess.run(
            ("dpkg-query", "--show", "--showformat=${Package} ${Version} ${Architecture}\n", *owners),
            capture_output=True,
            text=True,
            check=False,
        )
    except FileNotFoundError:
        return []
    return [Part.debian(*line.split(" ")) for line in known.stdout.splitlines()] if owners else []


def _installed_names(path: Path) -> Iterator[str]:
    """Yield the names under which dpkg may know a file: links are followed, and /lib may be a link to /usr/lib."""
    for name in {str(path), os.path.realpath(path)}:
        yield name
        yield name.removeprefix("/usr")


def _licences_of_packages(packages: Iterable[Part]) -> dict[str, Path]:
    texts = {f"{each.name}/copyright": Path("/usr/share/doc", each.name, "copyright") for each in packages}
    python = Path(sysconfig.get_path("stdlib"), "LICENSE.txt")
    return {name: path for name, path in ({"python/LICENSE.txt": python} | texts).items() if path.is_file()}


def _files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file() and not path.is_symlink())


def _forget_builder(folder: Path) -> None:
    """Let everybody read everything, whatever the umask of the user who builds."""
    for path in (folder, *folder.rglob("*")):
        path.chmod(0o755 if path.is_dir() or path.stat().st_mode & 0o100 else 0o644)


def main(arguments: list[str] | None = None) -> int:
    """Make the folder and print its size; return the exit code."""
    parser = argparse.ArgumentParser(prog="images.agent_root", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("folder", type=Path, metavar="FOLDER", help="where to write; it must be empty or absent")
    folder = parser.parse_args(arguments).folder
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if any(folder.iterdir()):
            raise BuildFailed(f"expected {folder} to be empty, saw files in it")
        build_id = make(folder)
    except (BuildFailed, MissingComponent) as error:
        print(f"agent-root: {error}", file=sys.stderr)
        return 1
    size = sum(path.stat().st_size for path in _files(folder))
    print(f"{folder}: {size / 1e6:.1f} MB, build {build_id[:16]}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
