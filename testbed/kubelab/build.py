"""Build the `kubelab` binary once.

A real kube-apiserver is the only honest judge of a watch, a conflict or an admission rule, but no wheel or
Debian package carries one. Its Go modules are public, so the tests compile it: minutes the first time,
nothing afterwards.

Usage: python -m testbed.kubelab.build      (prints the path of the binary as its last line)
"""

import sys
from pathlib import Path

from testbed.go_module import MOD, MOD_FLAGS, MOD_SOURCES, GoBuild, GoModule, pinned, print_made

SOURCE_DIR = Path(__file__).parent


def kubernetes_version() -> str:
    """Return the version that is pinned, such as v1.37.2: what a server built here reports."""
    return pinned(SOURCE_DIR / MOD, "k8s.io/kubernetes")


def _build_flags() -> tuple[str, ...]:
    """Return the arguments of `go build`; without the -X settings the server would report v0.0.0."""
    version = kubernetes_version()
    major, minor, _ = version.removeprefix("v").split(".")
    settings = {"gitVersion": version, "gitMajor": major, "gitMinor": minor, "gitTreeState": "clean"}
    linker = " ".join(("-s", "-w", *(f"-X k8s.io/component-base/version.{k}={v}" for k, v in settings.items())))
    return ("-trimpath", "-mod=readonly", *MOD_FLAGS, f"-ldflags={linker}")


KUBELAB = GoModule(
    name="kubelab",
    directory=SOURCE_DIR,
    sources=(*MOD_SOURCES, "main.go"),
    # CGO off: no C compiler needed, and the binary runs on any Linux of this architecture.
    builds=(GoBuild((".",), _build_flags(), {"CGO_ENABLED": "0"}),),
    cost="first time: 7 minutes of CPU, 2.3 GB of memory, 3.6 GB of Go caches",
    hint=", or set KUBEBUILDER_ASSETS to a folder that holds etcd and kube-apiserver 1.36 or newer",
)


def build() -> Path:
    """Return the cached kubelab of these sources, after building it when there is none.

    Raises:
        MissingComponent: Go is absent or too old.
        BuildFailed: the compiler refused; its output went to stderr.
    """
    return KUBELAB.build() / "kubelab"


if __name__ == "__main__":
    sys.exit(print_made("kubelab", build))
