"""Build Helm and crane once, as kubelab is built: no wheel or Debian package carries them.

A `helm` on PATH wins; `crane registry serve` is a registry to push to. Go's checksum database vouches for the sources
of the versions that are named here.

Usage: python -m testbed.go_programs      (prints the path of Helm's binary as its last line)
"""

from __future__ import annotations

import shutil
import sys
from functools import partial
from pathlib import Path
from typing import Final

from images.build_once import build_once, cache_dir
from testbed.go_module import go_install, print_made

HELM: Final = "v3.22.0"
KUBERNETES_MINOR: Final = "36"  # what `helm template` takes the cluster for; Helm's own releases set it like this
CRANE: Final = "v0.20.8"
COST: Final = "first time: 5 minutes of CPU"


def helm() -> Path:
    """Return Helm's binary, after building it when there is none.

    Raises:
        MissingComponent: there is no Go to build it with.
        BuildFailed: the compiler refused; its output went to stderr.
    """
    if (found := shutil.which("helm")) is not None:
        return Path(found)
    return build_once(cache_dir() / "helm" / f"{HELM}-1.{KUBERNETES_MINOR}", _install_helm) / "helm"


def _install_helm(folder: Path) -> None:
    """Put the binary into `folder`."""
    print(f"helm: building {folder} ({COST})", file=sys.stderr, flush=True)
    package = "helm.sh/helm/v3/pkg/chartutil"
    linker = f"-s -w -X {package}.k8sVersionMajor=1 -X {package}.k8sVersionMinor={KUBERNETES_MINOR}"
    go_install(folder, f"helm.sh/helm/v3/cmd/helm@{HELM}", linker, expected="`helm` or the Go compiler `go`")


def crane() -> Path:
    """Return crane's binary, after building it when there is none.

    Raises:
        MissingComponent: there is no Go to build it with.
        BuildFailed: the compiler refused; its output went to stderr.
    """
    package = f"github.com/google/go-containerregistry/cmd/crane@{CRANE}"
    install = partial(go_install, package=package, linker_flags="-s -w")
    return build_once(cache_dir() / "crane" / CRANE, install) / "crane"


if __name__ == "__main__":
    sys.exit(print_made("helm", helm))
