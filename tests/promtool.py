"""
Prometheus' own linter, for tests.

promtool is optional on a developer's machine: without it those tests skip and say how to get it.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
from pathlib import Path

import pytest

PROMTOOL = shutil.which("promtool")
DEADLINE_S = 240.0  # the rules' tests take 4 s of CPU, and took 28 s beside five other programs on two cores


def require(program: str, found: str | None) -> str:
    """Return the path of a program of Debian's package prometheus.

    Without it the test is skipped; in CI it fails, because a green run must mean that the test ran.
    """
    if found is None:
        missing = (
            f"{program} is not on PATH; it is in Debian's package prometheus (.ci/run takes it out of the package, "
            "because installing that starts a server)"
        )
        if os.environ.get("CI") == "true":
            pytest.fail(missing, pytrace=False)
        pytest.skip(missing)
    return found


async def complaints(exposed: bytes) -> str:
    """Return promtool's complaints about metrics in the text format, "" when there are none."""
    pipe = asyncio.subprocess.PIPE
    tool = await asyncio.create_subprocess_exec(
        require("promtool", PROMTOOL), "check", "metrics", stdin=pipe, stdout=pipe, stderr=asyncio.subprocess.STDOUT
    )
    async with asyncio.timeout(DEADLINE_S):
        said, _ = await tool.communicate(exposed)
    assert (tool.returncode == 0) is not bool(said)
    return said.decode()


def verdict(*command: str | Path) -> tuple[bool, str]:
    """Return whether promtool accepts its input, and its output."""
    ran = subprocess.run(
        [require("promtool", PROMTOOL), *command],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )
    return ran.returncode == 0, ran.stdout
