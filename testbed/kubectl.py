"""Run kubectl as a person would, against a control plane of the tests."""

from __future__ import annotations

import asyncio
import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest

REPOSITORY: Final = Path(__file__).parents[1]
TIMEOUT_S: Final = 120.0  # an apply of thirty objects takes two seconds
NO_TIME: Final = "Error from server (Timeout)"  # kube-apiserver breaks off a write after 34 s: too little processor
APPLIES_MAX: Final = 3
MISSING: Final = "kubectl is not on PATH; https://kubernetes.io/docs/tasks/tools/ says how to get it"


@dataclass(frozen=True, slots=True)
class Ended:
    """How a command ended."""

    code: int
    out: str
    err: str


def need_kubectl() -> None:
    """Skip without kubectl and say how to get it; in CI fail, because a green run must mean that the test ran."""
    if shutil.which("kubectl") is None:
        (pytest.fail if os.environ.get("CI") == "true" else pytest.skip)(MISSING)


async def kubectl(kubeconfig: Path, *arguments: str, stdin: str = "") -> Ended:
    """Run a command in the repository; skip where kubectl is missing, and fail in CI."""
    need_kubectl()
    process = await asyncio.create_subprocess_exec(
        *("kubectl", "--kubeconfig", str(kubeconfig), *arguments),
        cwd=REPOSITORY,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        out, err = await asyncio.wait_for(process.communicate(stdin.encode()), TIMEOUT_S)
    finally:
        if process.returncode is None:
            process.kill()
    assert process.returncode is not None
    return Ended(process.returncode, out.decode(), err.decode())


async def done(kubeconfig: Path, *arguments: str, stdin: str = "") -> str:
    """Run a command that must succeed, and return what it printed.

    An apply that a loaded server had no time for is said again, as a person would.
    """
    for _ in range(APPLIES_MAX):
        ended = await kubectl(kubeconfig, *arguments, stdin=stdin)
        if arguments[0] != "apply" or NO_TIME not in ended.err:
            break
    assert ended.code == 0, f"kubectl {' '.join(arguments)}: {ended.code}\n{ended.out}\n{ended.err}"
    return ended.out
