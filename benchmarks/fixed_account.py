"""
Give a program its service account at the one path at which it looks: /var/run/secrets/kubernetes.io/serviceaccount.

The benchmark begins again in a mount namespace of its own, with an empty file system where the machine has /run. That
is seen by nobody outside, and ends with the process.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Final

VARIABLE: Final = "INPLACE_BENCHMARK_HAS_MOUNTS"
ACCOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")


def service_account_folder(module: str) -> Path:
    """Return the empty folder; outside of a mount namespace begin again with this module and these arguments in one."""
    if VARIABLE not in os.environ:
        user = () if os.geteuid() == 0 else ("--map-root-user",)
        words = ("unshare", "--mount", *user, "--", sys.executable, "-m", module, *sys.argv[1:])
        os.execvpe(words[0], words, os.environ | {VARIABLE: "1"})  # noqa: S606 - no shell is wanted
    run = ACCOUNT.parents[2].resolve()
    subprocess.run(("mount", "-t", "tmpfs", "tmpfs", str(run)), check=True)
    ACCOUNT.mkdir(parents=True)
    return ACCOUNT
