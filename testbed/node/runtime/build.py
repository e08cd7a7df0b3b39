"""Build what runs containers, once.

Debian's runc is older than what containerd 2 asks for, and a release's archive would be a binary from elsewhere. The
sources are Go modules pinned by go.mod and go.sum; minutes the first time, nothing afterwards.

Usage: python -m testbed.node.runtime.build      (prints the folder of the programs as its last line)
"""

import sys
from pathlib import Path

from testbed.go_module import GoBuild, GoModule, print_made

_FLAGS = ("-trimpath", "-mod=readonly", "-ldflags=-s -w")
_CONTAINERD = "github.com/containerd/containerd/v2/cmd"
_CNI = "github.com/containernetworking/plugins/plugins"

RUNTIME = GoModule(
    name="runtime",
    directory=Path(__file__).parent,
    sources=("go.mod", "go.sum"),
    builds=(
        GoBuild(
            (
                *(f"{_CONTAINERD}/{name}" for name in ("containerd", "containerd-shim-runc-v2", "ctr")),
                f"{_CNI}/main/bridge",
                f"{_CNI}/ipam/host-local",
            ),
            _FLAGS,
            {"CGO_ENABLED": "0"},
        ),
        # runc enters namespaces in C, and without libseccomp a Pod with seccompProfile RuntimeDefault is refused.
        GoBuild(("github.com/opencontainers/runc",), (*_FLAGS, "-tags=seccomp"), {"CGO_ENABLED": "1"}),
    ),
    cost="first time: 4 minutes of CPU, 1 GB of Go caches",
)


if __name__ == "__main__":
    sys.exit(print_made("runtime", RUNTIME.build))
