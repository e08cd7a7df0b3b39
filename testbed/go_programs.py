"""
Build the programs of other projects that tests and benchmarks run, each once.

A real kube-apiserver is the only honest judge of a watch, a conflict or an admission rule, but no wheel or Debian
package carries one; Debian's runc is older than what containerd 2 asks for; and an archive of a release would be a
binary from elsewhere. The Go modules of all are public, so they are compiled here: minutes the first time, nothing
afterwards. What a folder's go.mod and go.sum pin is built as its project builds it; Go's checksum database vouches for
Helm and crane.

Usage: python -m testbed.go_programs      (prints the path of each; testbed.node.prepare builds RUNTIME)
"""

from __future__ import annotations

import shutil
import sys
from functools import cache, partial
from pathlib import Path
from typing import Final

from images.build_once import build_once, cache_dir
from testbed.go_module import (
    MOD,
    MOD_FLAGS,
    MOD_SOURCES,
    GoBuild,
    GoModule,
    Replacement,
    go_install,
    module_folder,
    pinned,
    print_made,
)

HERE: Final = Path(__file__).parent
FLAGS: Final = ("-trimpath", "-mod=readonly")
SMALL: Final = "-ldflags=-s -w"
# CGO off: no C compiler needed, and the binary runs on any Linux of this architecture.
NO_CGO: Final = {"CGO_ENABLED": "0"}


def kubernetes_version() -> str:
    """Return the version that is pinned, such as v1.37.2: what a server built here reports."""
    return pinned(HERE / "kubelab" / MOD, "k8s.io/kubernetes")


def _kubelab_linker() -> str:
    """Return what sets the version; without it the server would report v0.0.0."""
    version = kubernetes_version()
    major, minor, _ = version.removeprefix("v").split(".")
    settings = {"gitVersion": version, "gitMajor": major, "gitMinor": minor, "gitTreeState": "clean"}
    return " ".join(("-s", "-w", *(f"-X k8s.io/component-base/version.{k}={v}" for k, v in settings.items())))


KUBELAB: Final = GoModule(
    name="kubelab",
    directory=HERE / "kubelab",
    sources=(*MOD_SOURCES, "main.go"),
    builds=(GoBuild((".",), (*FLAGS, *MOD_FLAGS, f"-ldflags={_kubelab_linker()}"), NO_CGO),),
    cost="first time: 7 minutes of CPU, 2.3 GB of memory, 3.6 GB of Go caches",
    hint=", or set KUBEBUILDER_ASSETS to a folder that holds etcd and kube-apiserver 1.36 or newer",
)

UPSTREAM_MODULE: Final = "sigs.k8s.io/jobset"
CONTROLLER, AGENT = "jobset", "in-place-restart-agent"
UPSTREAM: Final = GoModule(
    name="upstream",
    directory=HERE / "upstream",
    sources=("go.mod", "go.sum"),
    # As upstream's Makefile builds them. The versions of their libraries are those of upstream's own go.mod.
    builds=(GoBuild((UPSTREAM_MODULE, f"{UPSTREAM_MODULE}/cmd/{AGENT}"), FLAGS, NO_CGO),),
    cost="first time: 140 s of CPU",
)

_CONTAINERD: Final = "github.com/containerd/containerd/v2/cmd"
_CNI: Final = "github.com/containernetworking/plugins/plugins"
RUNTIME: Final = GoModule(
    name="runtime",
    directory=HERE / "node" / "runtime",
    sources=("go.mod", "go.sum"),
    builds=(
        GoBuild(
            (
                *(f"{_CONTAINERD}/{name}" for name in ("containerd", "containerd-shim-runc-v2", "ctr")),
                f"{_CNI}/main/bridge",
                f"{_CNI}/ipam/host-local",
            ),
            (*FLAGS, SMALL),
            NO_CGO,
        ),
        # runc enters namespaces in C, and without libseccomp a Pod with seccompProfile RuntimeDefault is refused.
        GoBuild(("github.com/opencontainers/runc",), (*FLAGS, SMALL, "-tags=seccomp"), {"CGO_ENABLED": "1"}),
    ),
    cost="first time: 4 minutes of CPU, 1 GB of Go caches",
)

METRICS_FOLDER: Final = "metrics-certificate-here"
"""Where this Kueue looks for its metrics certificate, in its working directory; its own folder is one of /etc."""

KUEUE_MODULE: Final = "sigs.k8s.io/kueue"
KUEUE: Final = GoModule(
    name="kueue",
    directory=HERE / "clients" / "kueue",
    sources=MOD_SOURCES,
    builds=(GoBuild((f"{KUEUE_MODULE}/cmd/kueue",), (*FLAGS, *MOD_FLAGS, SMALL), NO_CGO),),
    cost="first time: 4 minutes of CPU",
    replacements=(Replacement("kueue", "/etc/kueue/metrics/certs", METRICS_FOLDER),),
)

TRAINER_MODULE: Final = "github.com/kubeflow/trainer/v2"
TRAINER: Final = GoModule(
    name="trainer",
    directory=HERE / "clients" / "trainer",
    sources=MOD_SOURCES,
    builds=(GoBuild((f"{TRAINER_MODULE}/cmd/trainer-controller-manager",), (*FLAGS, *MOD_FLAGS, SMALL), NO_CGO),),
    cost="first time: 90 seconds of CPU after Kueue",
)

HELM: Final = "v3.22.0"
KUBERNETES_MINOR: Final = "36"  # what `helm template` takes the cluster for; Helm's own releases set it like this
HELM_COST: Final = "first time: 5 minutes of CPU"
CRANE: Final = "v0.20.8"


# Each function below returns what is cached, after building it when it is not there. Each raises MissingComponent where
# Go is absent or too old, and BuildFailed where the compiler refused, whose output went to stderr.


def kubelab() -> Path:
    """Return the one binary of etcd and all components of Kubernetes."""
    return KUBELAB.build() / "kubelab"


def kueue() -> Path:
    """Return Kueue's program."""
    return KUEUE.build() / "kueue"


def trainer() -> Path:
    """Return Kubeflow Trainer's program."""
    return TRAINER.build() / "trainer-controller-manager"


def helm() -> Path:
    """Return Helm's binary; a `helm` on PATH wins."""
    if (found := shutil.which("helm")) is not None:
        return Path(found)
    return build_once(cache_dir() / "helm" / f"{HELM}-1.{KUBERNETES_MINOR}", _install_helm) / "helm"


def _install_helm(folder: Path) -> None:
    """Put the binary into `folder`."""
    print(f"helm: building {folder} ({HELM_COST})", file=sys.stderr, flush=True)
    package = "helm.sh/helm/v3/pkg/chartutil"
    linker = f"-s -w -X {package}.k8sVersionMajor=1 -X {package}.k8sVersionMinor={KUBERNETES_MINOR}"
    go_install(folder, f"helm.sh/helm/v3/cmd/helm@{HELM}", linker, expected="`helm` or the Go compiler `go`")


def crane() -> Path:
    """Return crane's binary; `crane registry serve` is a registry to push to."""
    package = f"github.com/google/go-containerregistry/cmd/crane@{CRANE}"
    install = partial(go_install, package=package, linker_flags="-s -w")
    return build_once(cache_dir() / "crane" / CRANE, install) / "crane"


# The folders of modules' sources: manifests are read from them when they are needed, and none is in this repository.


def upstream_version() -> str:
    """Return upstream's version as go.mod pins it, such as v0.12.0."""
    return pinned(UPSTREAM.directory / "go.mod", UPSTREAM_MODULE)


@cache
def upstream_sources() -> Path:
    """Return the folder of upstream's sources, downloaded if it is not there; see `module_folder`."""
    return module_folder(UPSTREAM.directory, UPSTREAM_MODULE)


def kueue_sources() -> Path:
    """Return the folder of Kueue's sources."""
    return module_folder(KUEUE.directory, KUEUE_MODULE, MOD_FLAGS)


@cache
def trainer_sources() -> Path:
    """Return the folder of Trainer's sources."""
    return module_folder(TRAINER.directory, TRAINER_MODULE, MOD_FLAGS)


if __name__ == "__main__":
    sys.exit(print_made("cluster", kubelab, helm, UPSTREAM.build, kueue, trainer))
