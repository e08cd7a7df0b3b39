"""Run a framework's example: in `inplace demo`, or its script alone."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from testbed.frameworks.venv import environment

REPOSITORY = Path(__file__).parents[2]
RUN_S_MAX = 300.0


def restart_twice(framework: str, manifest: str) -> None:
    """Let `inplace demo` kill two workers: no Pod is new, no container, and each epoch begins with a lower loss."""
    options = ("--venv", str(environment(framework)), "--json", "--file", manifest, "--failures", "2")
    result = _last_line("inplace.cli", "demo", *options)
    assert (result["failures"], result["pods_recreated"], result["containers_restarted"]) == (2, 0, 0)
    lines = [dict(word.split("=") for word in line.split()) for line in result["first_lines"]]
    assert [line["epoch"] for line in lines] == ["1", "2", "3"]
    assert all(float(later["loss"]) < float(earlier["loss"]) for earlier, later in pairwise(lines))


def recover_from_kills(example: str, *options: str) -> None:
    """Strike three times: all are recovered from, no two epochs meet, and each loss is as in a run without failures."""
    result = _last_line("testbed.frameworks.kills", example, "--kills", "3", *options)
    assert (result["kills"], result["recovered"], result["mixed"], result["wrong_losses"]) == (3, 3, 0, 0)


def _last_line(module: str, *arguments: str) -> dict[str, Any]:
    """Run a program of this project to its end and with exit 0; return the JSON object that it printed last."""
    command = [sys.executable, "-m", module, *arguments]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, timeout=RUN_S_MAX, check=False)
    assert done.returncode == 0, done.stderr + done.stdout
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return result


def on_tmpfs(folder: Path, options: str) -> tuple[str, ...]:
    """Return words to put before a command, or before its variables; then this folder is a tmpfs with these options."""
    if shutil.which("unshare") is None:
        pytest.skip("expected unshare (util-linux), which mounts such a folder, saw none")
    mount = f'mount -t tmpfs -o {options} tmpfs {folder} && exec env "$@"'
    return "unshare", "--map-root-user", "--mount", "sh", "-c", mount, "sh"


def run_script(framework: str, module: str, env: Mapping[str, str], *prefix: str) -> subprocess.CompletedProcess[str]:
    """Run one worker of an example alone, with these variables beside the shell's; `prefix` are words before Python."""
    command = [*prefix, str(environment(framework) / "bin" / "python3"), "-m", module]
    return subprocess.run(
        command,
        env={"PATH": os.environ["PATH"], "PYTHONPATH": str(REPOSITORY), **env},
        capture_output=True,
        text=True,
        timeout=RUN_S_MAX,
        check=False,
    )
