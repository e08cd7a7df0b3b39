"""Build upstream's JobSet controller and its in-place restart agent once, as kubelab is built.

Their manifests are read from the module's folder when they are needed; nothing of upstream's is in this repository.

Usage: python -m testbed.upstream.build      (prints the folder of the programs as its last line)
"""

import re
import subprocess
import sys
from functools import cache
from pathlib import Path

from images.build_once import BuildFailed, MissingComponent
from testbed.go_module import GoBuild, GoModule

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

DOWNLOAD_S_MAX = 300.0
"""For the module's 10 MB, when the build that was cached did not leave them here."""


def version() -> str:
    """Return upstream's version as go.mod pins it, such as v0.12.0."""
    found = re.search(
        rf"^\s*(?:require )?{re.escape(MODULE)} (v\S+)", (SOURCE_DIR / "go.mod").read_text(), re.MULTILINE
    )
    assert found is not None, f"go.mod names no {MODULE}"
    return found[1]


@cache
def module_dir() -> Path:
    """Return the folder of upstream's sources, downloaded if it is not there.

    Raises:
        BuildFailed: Go cannot find or download the module.
    """
    for arguments in (("mod", "download", MODULE), ("list", "-m", "-f", "{{.Dir}}", MODULE)):
        said = subprocess.run(
            ("go", *arguments), cwd=SOURCE_DIR, capture_output=True, text=True, timeout=DOWNLOAD_S_MAX, check=False
        )
        if said.returncode:
            raise BuildFailed(f"expected `go {' '.join(arguments)}` to succeed, saw {said.stderr.strip()!r}")
    return Path(said.stdout.strip())


def main() -> int:
    """Print the folder of the programs; say what is missing and return 1 when there can be none."""
    try:
        print(UPSTREAM.build())
    except (MissingComponent, BuildFailed) as error:
        print(f"upstream: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
