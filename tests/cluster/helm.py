"""
Build Helm once, as kubelab is built: no wheel or Debian package carries it, and its Go module is public.

A `helm` on PATH wins. The binary in the cache is named after its version, and gets that name when it is complete.

Usage: python -m tests.cluster.helm      (prints the path of the binary as its last line)
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

from tests.cluster.kubelab.build import (
    BUILD_NICENESS,
    BUILD_TIMEOUT_S,
    HOW_TO_GET_GO,
    STDERR_FD,
    BuildFailed,
    MissingComponent,
)

VERSION: Final = "v3.22.0"
KUBERNETES_MINOR: Final = "36"  # what `helm template` takes the cluster for; its own release build sets it like this
BUILD_COST: Final = "first time: 5 minutes of CPU"


def helm() -> Path:
    """Return Helm's binary, after building it when there is none.

    Raises:
        MissingComponent: there is no Go to build it with.
        BuildFailed: the compiler refused; its output went to stderr.
    """
    if (found := shutil.which("helm")) is not None:
        return Path(found)
    cache = Path(os.environ.get("INPLACE_CACHE_DIR") or Path.home() / ".cache" / "inplace")
    binary = cache / "helm" / f"{VERSION}-{KUBERNETES_MINOR}" / "helm"
    binary.parent.mkdir(parents=True, exist_ok=True)
    with (binary.parent / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # another run may be building it
        if not binary.exists():
            _build(binary)
    return binary


def _build(binary: Path) -> None:
    if shutil.which("go") is None:
        raise MissingComponent(f"expected `helm` or the Go compiler `go` on PATH, found neither. {HOW_TO_GET_GO}")
    print(f"helm: building {binary} ({BUILD_COST})", file=sys.stderr, flush=True)
    package = "helm.sh/helm/v3/pkg/chartutil"
    settings = f"-s -w -X {package}.k8sVersionMajor=1 -X {package}.k8sVersionMinor={KUBERNETES_MINOR}"
    install = ("go", "install", "-trimpath", f"-ldflags={settings}", f"helm.sh/helm/v3/cmd/helm@{VERSION}")
    with tempfile.TemporaryDirectory(dir=binary.parent) as scratch:
        environment = {**os.environ, "CGO_ENABLED": "0", "GOBIN": scratch, "GOFLAGS": "-mod=mod"}
        command = ("nice", "-n", str(BUILD_NICENESS), *install)
        try:
            subprocess.run(command, cwd=scratch, env=environment, stdout=STDERR_FD, timeout=BUILD_TIMEOUT_S, check=True)
        except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
            raise BuildFailed(f"expected {' '.join(command)} to succeed: {error}") from error
        (Path(scratch) / "helm").rename(binary)


if __name__ == "__main__":
    try:
        print(helm())
    except (MissingComponent, BuildFailed) as error:
        sys.exit(f"helm: {error}")
