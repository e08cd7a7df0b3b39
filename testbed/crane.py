"""Build go-containerregistry's crane once, as Helm is built: `crane registry serve` is a registry to push to.

Usage: python -m testbed.crane      (prints the path of the binary as its last line)
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import Final

from images.build_once import BuildFailed, MissingComponent, build_once, cache_dir, run_nicely
from testbed.go_module import HOW_TO_GET_GO

VERSION: Final = "v0.20.8"
PACKAGE: Final = "github.com/google/go-containerregistry/cmd/crane"


def crane() -> Path:
    """Return the binary, after building it when there is none.

    Raises:
        MissingComponent: there is no Go to build it with.
        BuildFailed: the compiler refused; its output went to stderr.
    """
    return build_once(cache_dir() / "crane" / VERSION, _install) / "crane"


def _install(folder: Path) -> None:
    """Put the binary into `folder`."""
    if shutil.which("go") is None:
        raise MissingComponent(f"expected the Go compiler `go` on PATH, found none. {HOW_TO_GET_GO}.")
    run_nicely(
        ("go", "install", "-trimpath", "-ldflags=-s -w", f"{PACKAGE}@{VERSION}"),
        directory=folder,
        environment={"CGO_ENABLED": "0", "GOBIN": str(folder), "GOFLAGS": "-mod=mod"},
    )


if __name__ == "__main__":
    try:
        print(crane())
    except (MissingComponent, BuildFailed) as error:
        sys.exit(f"crane: {error}")
