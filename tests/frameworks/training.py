"""Run a framework's example: in `inplace demo`, or its script alone."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from testbed.frameworks.venv import environment

REPOSITORY = Path(__file__).parents[2]
RUN_S_MAX = 300.0


def demo(framework: str, *arguments: str) -> dict[str, Any]:
    """Run `inplace demo` with the framework's environment, to its end and with exit 0; return its JSON object."""
    command = [sys.executable, "-m", "inplace.cli", "demo", "--venv", str(environment(framework)), "--json", *arguments]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, timeout=RUN_S_MAX, check=False)
    assert done.returncode == 0, done.stderr
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return result


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


LATE = """
import os, sys
from pathlib import Path
from inplace.examples import {framework}_train as script
folder, sync = Path(sys.argv[1]), os.fsync
late, now = script.Checkpoints(folder, 1, 0), script.Checkpoints(folder, 2, 0)
def overtake(file):
    os.fsync = sync
    now.write(10, dict(epoch=2))
    sync(file)
os.fsync = overtake
try:
    late.write(10, dict(epoch=1))
except script.CheckpointError as error:
    print(error.__cause__.strerror)
found = now.newest(10)
print(int((found if isinstance(found, dict) else found[1])["epoch"]), *sorted(path.name for path in folder.iterdir()))
"""


def overtake_a_late_writer(framework: str, folder: Path) -> list[str]:
    """Let epoch 1 and then epoch 2 write one checkpoint in a folder, and 2 be the first to end; return what is there.

    It is why the first one ended, whose the checkpoint is, and each file's name.
    """
    python = environment(framework) / "bin" / "python3"
    env = {"PATH": os.environ["PATH"], "PYTHONPATH": str(REPOSITORY), "JAX_PLATFORMS": "cpu"}
    command = [str(python), "-c", LATE.format(framework=framework), str(folder)]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=RUN_S_MAX, check=True)
    return done.stdout.splitlines()


def losses(lines: list[str]) -> list[float]:
    """Return the loss of each line `step=N loss=X ...`."""
    return [float(dict(word.split("=") for word in line.split())["loss"]) for line in lines]
