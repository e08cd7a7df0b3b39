"""Standard output that is full, closed or of another encoding ends no command with a traceback."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from io import BytesIO, TextIOWrapper
from pathlib import Path

import pytest

from inplace.cli.terminal.visible import guard_streams
from tests.cli.command import REPOSITORY, command, run


def test_what_cannot_be_written_fails_the_command(tmp_path: Path) -> None:
    """A file that takes no more bytes gives exit code 1 and one sentence."""
    with (tmp_path / "full").open("w") as full:
        done = subprocess.run(
            command("--version"),
            cwd=REPOSITORY,
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            timeout=60,
            check=False,
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0)),
        )
    assert (done.returncode, done.stderr) == (
        1,
        "inplace: expected to write everything to standard output, saw: File too large\n",
    )


def test_a_closed_standard_output_is_no_error() -> None:
    """`inplace --version >&-` succeeds, as it does for other programs."""
    done = subprocess.run(
        ["sh", "-c", 'exec "$@" >&-', "sh", *command("--version")],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_an_encoding_without_a_character_gets_its_escape(monkeypatch: pytest.MonkeyPatch) -> None:
    """In ASCII a middle dot is an escape, and no command dies of it."""
    raw = BytesIO()
    monkeypatch.setattr(sys, "stdout", TextIOWrapper(raw, encoding="ascii"))
    monkeypatch.setattr(sys, "stderr", sys.stderr)
    guard_streams()
    print("2 working · 1 waiting", flush=True)
    assert raw.getvalue() == f"2 working \\xb7 1 waiting{os.linesep}".encode()
    assert run("--help", PYTHONIOENCODING="ascii").returncode == 0
