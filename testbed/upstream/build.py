"""Build upstream's JobSet controller and its in-place restart agent once, as kubelab is built.

Their manifests are read from the module's folder when they are needed; nothing of upstream's is in this repository.

Usage: python -m testbed.upstream.build      (prints the folder of the programs as its last line)
"""

import sys
from functools import cache
from pathlib import Path

from testbed.go_module import GoBuild, GoModule, module_folder, pinned, print_made

SOURCE_DIR = Path(__file__).parent
MODULE = "sigs.k8s.io/jobset"
CONTROLLER, AGENT = "jobset", "in-place-restart-agent"

UPSTREAM = GoModule(
    name="upstream",
    directory=SOURCE_DIR,
    sources=("go.mod", "go.sum"),
    # As upstream's Makefile builds them. The versions of their libraries are those of upstream's own go.mod.
    builds=(GoBuild((MODULE, f"{MODULE}/cmd/{AGENT}"), ("-trimpath", "-mod=readonly"), {"CGO_ENABLED": "0"}),),
    cost="first time: 140 s of CPU",
)


def version() -> str:
    """Return upstream's version as go.mod pins it, such as v0.12.0."""
    return pinned(SOURCE_DIR / "go.mod", MODULE)


@cache
def module_dir() -> Path:
    """Return the folder of upstream's sources, downloaded if it is not there; see `module_folder`."""
    return module_folder(SOURCE_DIR, MODULE)


if __name__ == "__main__":
    sys.exit(print_made("upstream", UPSTREAM.build))
