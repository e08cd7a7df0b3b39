"""Build go-containerregistry's crane once, as Helm is built: `crane registry serve` is a registry to push to.

Usage: python -m testbed.crane      (prints the path of the binary as its last line)
"""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path
from typing import Final

from images.build_once import build_once, cache_dir
from testbed.go_module import go_install, print_made

VERSION: Final = "v0.20.8"
PACKAGE: Final = f"github.com/google/go-containerregistry/cmd/crane@{VERSION}"


def crane() -> Path:
    """Return the binary, after building it when there is none.

    Raises:
        MissingComponent: there is no Go to build it with.
        BuildFailed: the compiler refused; its output went to stderr.
    """
    install = partial(go_install, package=PACKAGE, linker_flags="-s -w")
    return build_once(cache_dir() / "crane" / VERSION, install) / "crane"


if __name__ == "__main__":
    sys.exit(print_made("crane", crane))
