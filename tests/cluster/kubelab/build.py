"""Build the `kubelab` binary once.

A real kube-apiserver is the only honest judge of a watch, a conflict or an admission rule, but no wheel or
Debian package carries one. Its Go modules are public, so the tests compile it: minutes the first time,
nothing afterwards.

Guarantees: a binary in the cache is complete (it gets its name by an atomic rename), was built from exactly
the sources its folder is named after, and is built once however many test runs want it at the same time
(flock; the kernel drops the lock of a run that dies). Deliberately does not delete binaries of older
sources: another work tree may be using them, and `rm -r` of the cache folder is always safe.

Usage: python -m tests.cluster.kubelab.build      (prints the path of the binary as its last line)
"""

import fcntl
import hashlib
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

SOURCE_DIR = Path(__file__).parent
SOURCES = ("go.mod", "go.sum", "main.go")

GO_MINIMUM = (1, 26)
"""What Kubernetes 1.36 itself requires."""

GO_TIMEOUT_S = 60.0
"""For `go version`, which may fetch a newer toolchain when GOTOOLCHAIN allows it."""

BUILD_TIMEOUT_S = 3600.0
"""Eight times a cold build on one core; a build that takes longer hangs on its network."""

BUILD_COST = "first time: 7 minutes of CPU, 2.3 GB of memory, 3.6 GB of Go caches"

BUILD_NICENESS = 10
"""The build takes every core for minutes; whatever else the machine does goes first."""

STDERR_FD = 2

HOW_TO_GET_GO = (
    "Install Go 1.26 or newer from https://go.dev/dl/ and put it on PATH, or set KUBEBUILDER_ASSETS "
    "to a folder that holds etcd and kube-apiserver 1.36 or newer."
)


class MissingComponent(Exception):
    """Nothing on this machine can run or build a control plane; the message says what to install."""


class BuildFailed(Exception):
    """Go is here but the build did not succeed: our sources, the network or the disk is at fault."""


def kubernetes_version() -> str:
    """Return the version go.mod pins, such as v1.36.3: what a server built here reports."""
    found = re.search(r"k8s\.io/kubernetes (v\d+\.\d+\.\d+)$", (SOURCE_DIR / "go.mod").read_text(), re.MULTILINE)
    assert found is not None, "go.mod names no k8s.io/kubernetes"
    return found[1]


def build() -> Path:
    """Return the cached kubelab of these sources, after building it when there is none.

    Raises:
        MissingComponent: Go is absent or too old.
        BuildFailed: the compiler refused; its output went to stderr.
    """
    binary = cached_path(_go_version())
    if binary.exists():
        return binary
    binary.parent.mkdir(parents=True, exist_ok=True)
    with _exclusive(binary.parent / "lock"):
        if not binary.exists():  # Another run may have built it while this one waited for the lock.
            _compile(binary)
    return binary


def cached_path(go_version: str) -> Path:
    """Return where the binary of these sources, flags and compiler lives, whether or not it exists yet."""
    digest = hashlib.sha256("\0".join((go_version, *_build_flags())).encode())
    for name in SOURCES:
        digest.update(name.encode() + b"\0" + (SOURCE_DIR / name).read_bytes())
    cache_dir = Path(os.environ.get("INPLACE_CACHE_DIR") or Path.home() / ".cache" / "inplace")
    return cache_dir / "kubelab" / digest.hexdigest()[:16] / "kubelab"


def _go_version() -> str:
    """Return what `go version` says (release and platform) once it is known to be new enough."""
    try:
        said = subprocess.run(
            ("go", "version"),
            cwd=SOURCE_DIR,
            capture_output=True,
            text=True,
            timeout=GO_TIMEOUT_S,
            check=False,
        )
    except FileNotFoundError as error:
        raise MissingComponent(f"expected the Go compiler `go` on PATH, found none. {HOW_TO_GET_GO}") from error
    found = re.search(r"\bgo(\d+)\.(\d+)", said.stdout)
    if said.returncode != 0 or found is None or (int(found[1]), int(found[2])) < GO_MINIMUM:
        raise MissingComponent(
            f"expected Go 1.26 or newer, saw {(said.stdout + said.stderr).strip()!r}. {HOW_TO_GET_GO}"
        )
    return said.stdout.strip()


def _build_flags() -> tuple[str, ...]:
    """Return the arguments of `go build`; without the -X settings the server would report v0.0.0."""
    version = kubernetes_version()
    major, minor, _ = version.removeprefix("v").split(".")
    settings = {"gitVersion": version, "gitMajor": major, "gitMinor": minor, "gitTreeState": "clean"}
    linker = " ".join(("-s", "-w", *(f"-X k8s.io/component-base/version.{k}={v}" for k, v in settings.items())))
    return ("-trimpath", "-mod=readonly", f"-ldflags={linker}")


def _compile(binary: Path) -> None:
    """Put a new `binary` in place in one step, so that nobody ever runs half of one."""
    with tempfile.TemporaryDirectory(dir=binary.parent) as scratch:
        made = Path(scratch) / binary.name
        print(f"kubelab: building {binary} ({BUILD_COST})", file=sys.stderr, flush=True)
        command = ("nice", "-n", str(BUILD_NICENESS), "go", "build", *_build_flags(), "-o", str(made), ".")
        # CGO off: no C compiler needed, and the binary runs on any Linux of this architecture.
        environment = {**os.environ, "CGO_ENABLED": "0"}
        try:
            # Standard output is reserved for the path, so what Go says goes to standard error. The descriptor
            # and not sys.stderr: pytest may have replaced that with an object that has none.
            subprocess.run(
                command,
                cwd=SOURCE_DIR,
                env=environment,
                stdout=STDERR_FD,
                timeout=BUILD_TIMEOUT_S,
                check=True,
            )
        except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
            raise BuildFailed(f"expected {' '.join(command)} to succeed in {SOURCE_DIR}: {error}") from error
        made.rename(binary)


@contextmanager
def _exclusive(lock: Path) -> Iterator[None]:
    """Hold the lock file; wait for it as long as its holder may build, which is BUILD_TIMEOUT_S."""
    with lock.open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def main() -> int:
    """Print the path of the binary; say what is missing and return 1 when there can be none."""
    try:
        print(build())
    except (MissingComponent, BuildFailed) as error:
        print(f"kubelab: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
