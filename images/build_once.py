"""Build slow things once, and keep them in a cache.

Guarantees: an entry of the cache is complete (an atomic rename gives it its name), and is built once even if several
runs want it at the same time (flock; the kernel releases the lock of a run that dies). The module does not delete
entries of older sources, because another work tree may use them; `rm -r` of the cache folder is always safe.
"""

import fcntl
import os
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

BUILD_TIMEOUT_S = 3600.0
"""Eight times a cold build on one core; a build that takes longer hangs on its network."""

BUILD_NICENESS = 10
"""A build takes every core for minutes; whatever else the machine does goes first."""

STDERR_FD = 2


class MissingComponent(Exception):
    """A tool is missing on this machine; the message names it and says how to get it."""


class BuildFailed(Exception):
    """The tools are here but the build did not succeed: our sources, the network or the disk is at fault."""


def cache_dir() -> Path:
    """Return the cache folder: its contents are slow to make and safe to delete."""
    return Path(os.environ.get("INPLACE_CACHE_DIR") or Path.home() / ".cache" / "inplace")


def build_once(folder: Path, make: Callable[[Path], None]) -> Path:
    """Return `folder`; if it does not exist, `make` fills it first, and it appears only complete."""
    if not folder.exists():
        folder.parent.mkdir(parents=True, exist_ok=True)
        with _exclusive(folder.parent / "lock"):
            if not folder.exists():  # Another run may have made it while this one waited for the lock.
                with tempfile.TemporaryDirectory(dir=folder.parent) as scratch:
                    made = Path(scratch) / folder.name
                    made.mkdir()
                    make(made)
                    made.rename(folder)
    return folder


def run_nicely(command: Sequence[str], *, directory: Path, environment: Mapping[str, str] | None = None) -> None:
    """
    Run a long command at the lowest priority.

    Raises:
        BuildFailed: the command failed; its output went to stderr.
    """
    words = ("nice", "-n", str(BUILD_NICENESS), *command)
    try:
        # Standard output is reserved for the path, so what the command says goes to standard error. The descriptor
        # and not sys.stderr: pytest may have replaced that with an object that has none.
        subprocess.run(
            words,
            cwd=directory,
            env={**os.environ, **(environment or {})},
            stdin=subprocess.DEVNULL,
            stdout=STDERR_FD,
            timeout=BUILD_TIMEOUT_S,
            check=True,
        )
    except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
        raise BuildFailed(f"expected {' '.join(words)} to succeed in {directory}: {error}") from error


@contextmanager
def _exclusive(lock: Path) -> Iterator[None]:
    """Hold the lock file; wait for it as long as its holder may build, which is BUILD_TIMEOUT_S."""
    with lock.open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
