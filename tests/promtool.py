"""
Prometheus' own linter, for tests.

promtool is optional on a developer's machine: without it those tests skip and say how to get it.
"""

from __future__ import annotations

import asyncio
import os
import shutil

import pytest

PROMTOOL = shutil.which("promtool")
DEADLINE_S = 30.0


async def complaints(exposed: bytes) -> str:
    """Return what promtool says about metrics in the text format, "" when it is content.

    Where promtool is missing the test is skipped, and fails in CI, where a green run must mean that it ran.
    """
    if PROMTOOL is None:
        missing = "promtool is not on PATH; it is in Debian's package prometheus"
        if os.environ.get("CI") == "true":
            pytest.fail(missing, pytrace=False)
        pytest.skip(missing)
    pipe = asyncio.subprocess.PIPE
    tool = await asyncio.create_subprocess_exec(
        PROMTOOL, "check", "metrics", stdin=pipe, stdout=pipe, stderr=asyncio.subprocess.STDOUT
    )
    async with asyncio.timeout(DEADLINE_S):
        said, _ = await tool.communicate(exposed)
    assert (tool.returncode == 0) is not bool(said)
    return said.decode()
