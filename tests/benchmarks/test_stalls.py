"""Whom a restart's status and stacks name for a hang, and which process of a Pod is its rank."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from benchmarks.stalls import judged
from testbed.frameworks.ranks import trainers
from tests.cli.command import REPOSITORY

MARKER = "INPLACE_TEST_STALLS=1"


def silent(*pods: str) -> dict[str, Any]:
    """Return the restart of a hang in which these Pods were furthest behind."""
    return {"firstSilent": {"pods": list(pods), "count": len(pods), "step": 8, "quietMilliseconds": 3000}}


def group(*pods: str) -> dict[str, Any]:
    """Return ranks that are at the same place."""
    return {"ranks": [{"pod": pod} for pod in pods]}


@pytest.mark.parametrize(
    ("restart", "groups", "verdict"),
    [
        (silent("a"), [], "steps"),
        (silent("b"), [group("a"), group("b", "c")], "wrong"),
        (silent("a", "b", "c"), [group("a"), group("b", "c")], "stacks"),
        (silent("a", "b", "c"), [group("b"), group("a", "c")], "wrong"),
        (silent("a", "b", "c"), [group("a", "b", "c")], "untold"),
        ({}, [], "untold"),
    ],
)
def test_a_verdict_is_what_a_person_reads(restart: dict[str, Any], groups: list[dict[str, Any]], verdict: str) -> None:
    """Stacks are read where steps cannot tell; who names a healthy rank alone is wrong, whatever else it says."""
    assert judged(restart, groups, "a") == verdict


@contextmanager
def started(*command: str) -> Iterator[int]:
    """Run a program with the marker in its environment; yield its process id."""
    name, _, value = MARKER.partition("=")
    process = subprocess.Popen(command, cwd=REPOSITORY, env={name: value}, stdout=subprocess.DEVNULL)
    try:
        yield process.pid
    finally:
        process.kill()
        process.wait()


def test_a_guard_is_no_rank(tmp_path: Path) -> None:
    """It carries the training script's name in its own command, as launchers and agents do."""
    programs = {name: tmp_path / name for name in ("guard", "train")}
    for program in programs.values():
        program.write_text("import time; time.sleep(60)")
    with (
        started(sys.executable, str(programs["guard"]), "--", "python3", "-m", "example.train"),
        started(sys.executable, str(programs["train"]), "-m", "example.train") as rank,
    ):
        assert [pid for pod in trainers(MARKER, "example.train") for pid in pod] == [rank]
