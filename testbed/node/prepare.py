"""Make everything that a run on nodes needs, before the run: inside its capsule there is no network.

Usage: python -m testbed.node.prepare
"""

import sys

from images.build_once import BuildFailed, MissingComponent
from testbed.binaries import find_binaries
from testbed.go_programs import RUNTIME
from testbed.node import archives, host


def main() -> int:
    """Install, build and cache; say what is missing and return 1 when something cannot be had."""
    try:
        host.install()
        host.check()
        find_binaries().command("kubelet")
        RUNTIME.build()
        archives.build()
        archives.build_jax()
        _install_torch()
    except (MissingComponent, BuildFailed) as error:
        print(f"node: {error}", file=sys.stderr)
        return 1
    return 0


def _install_torch() -> None:
    """Install PyTorch, or say why its tests are left out."""
    try:
        archives.torch_packages()
    except MissingComponent as error:
        print(f"node: {error}", file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
