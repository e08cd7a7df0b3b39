"""Build Helm once, as kubelab is built: no wheel or Debian package carries it, and its Go module is public.

A `helm` on PATH wins. Go's checksum database vouches for the sources of the version that is named here.

Usage: python -m testbed.helm      (prints the path of the binary as its last line)
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import Final

from images.build_once import build_once, cache_dir
from testbed.go_module import go_install, print_made

VERSION: Final = "v3.22.0"
KUBERNETES_MINOR: Final = "36"  # what `helm template` takes the cluster for; Helm's own releases set it like this
COST: Final = "first time: 5 minutes of CPU"


def helm() -> Path:
    """Return Helm's binary, after building it when there is none.

    Raises:
        MissingComponent: there is no Go to build it with.
        BuildFailed: the compiler refused; its output went to stderr.
    """
    if (found := shutil.which("helm")) is not None:
        return Path(found)
    return build_once(cache_dir() / "helm" / f"{VERSION}-1.{KUBERNETES_MINOR}", _install) / "helm"


def _install(folder: Path) -> None:
    """Put the binary into `folder`."""
    print(f"helm: building {folder} ({COST})", file=sys.stderr, flush=True)
    package = "helm.sh/helm/v3/pkg/chartutil"
    linker = f"-s -w -X {package}.k8sVersionMajor=1 -X {package}.k8sVersionMinor={KUBERNETES_MINOR}"
    go_install(folder, f"helm.sh/helm/v3/cmd/helm@{VERSION}", linker, expected="`helm` or the Go compiler `go`")


if __name__ == "__main__":
    sys.exit(print_made("helm", helm))
