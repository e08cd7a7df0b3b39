"""
Make a virtual environment for each framework, once, from its lock.

The project's own environment has no framework: one takes 0.6 GB and more. `NAME.lock` beside this module pins
every package with its hashes; `make lock` writes it from `NAME.in`. The cache keeps each by its lock's hash. A
`NAME.unpacked` beside it names what pip cannot install (`testbed.frameworks.unpacked`).

Usage: python -m testbed.frameworks.venv [NAME...]      (prints `NAME FOLDER` for each; without names, for all that fit)
"""

import hashlib
import shutil
import sys
import venv
from collections.abc import Sequence
from pathlib import Path

from images.build_once import BuildFailed, MissingComponent, build_once, cache_dir, run_nicely
from testbed.frameworks.no_cuda import stand_in
from testbed.frameworks.unpacked import unpack

LOCKS = Path(__file__).parent
GB = 1_000_000_000
FRAMEWORKS = {"jax": 2 * GB, "torch": 4 * GB, "libraries": 4 * GB}
"""Name of each framework, and the free disk that its installation needs, in bytes: the packages, and pip's copies."""

LEFT_OUT = 3
"""Exit code: a named framework is left out, because this machine lacks what its installation needs."""


def environment(name: str) -> Path:
    """Return the folder of a framework's virtual environment, after making it when there is none.

    Raises:
        MissingComponent: too little of the disk is free, or a compiler is missing (torch, libraries).
        BuildFailed: pip could not install the lock; its output went to stderr.
    """
    lock, unpacked = LOCKS / f"{name}.lock", LOCKS / f"{name}.unpacked"
    content = lock.read_bytes() + (unpacked.read_bytes() if unpacked.exists() else b"")
    key = hashlib.sha256(content + f"{sys.version} {sys.base_prefix}".encode()).hexdigest()[:16]
    folder = cache_dir() / "frameworks" / f"{name}-{key}"

    def make(_: Path) -> None:
        """Fill `folder` itself: an environment's programs name their interpreter by its path, so it cannot be moved."""
        _check_room(name, folder)
        shutil.rmtree(folder, ignore_errors=True)  # what a run left that was killed
        venv.create(folder, with_pip=True)
        words = ("-m", "pip", "install", "-q", "--disable-pip-version-check", "--require-hashes", "--no-deps", "-r")
        run_nicely((str(folder / "bin" / "python"), *words, str(lock)), directory=folder)
        if unpacked.exists():
            unpack(unpacked, folder)
        for libraries in folder.glob("lib/python*/site-packages/torch/lib"):
            stand_in(libraries)

    build_once(folder.with_name(f"{folder.name}.complete"), make)
    return folder


def _check_room(name: str, folder: Path) -> None:
    free = shutil.disk_usage(folder.parent).free
    if free < FRAMEWORKS[name]:
        raise MissingComponent(
            f"{name} is left out: its installation in {folder.parent} needs {FRAMEWORKS[name] / GB:.0f} GB, saw "
            f"{free / GB:.1f} GB free; free some, or let INPLACE_CACHE_DIR name a folder on a larger disk"
        )


def main(names: Sequence[str]) -> int:
    """Print the environments; return 1 if an installation failed, LEFT_OUT if there is no room for a named one."""
    if unknown := set(names) - FRAMEWORKS.keys():
        print(f"expected names out of {', '.join(FRAMEWORKS)}, saw {', '.join(sorted(unknown))}", file=sys.stderr)
        return 2
    code = 0
    for name in names or FRAMEWORKS:
        try:
            print(f"{name} {environment(name)}", flush=True)
        except MissingComponent as error:
            print(error, file=sys.stderr)
            code = code or (LEFT_OUT if names else 0)
        except BuildFailed as error:
            print(error, file=sys.stderr)
            code = 1
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
