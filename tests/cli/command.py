"""Run `inplace` as a user does, in a process of its own, or in this one."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import chdir, contextmanager, redirect_stderr, redirect_stdout, suppress
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
import typer.main
from typer.core import TyperGroup

from inplace.cli.main import app

REPOSITORY = Path(__file__).parents[2]
RUN_S_MAX = 120.0


def command(*arguments: str) -> list[str]:
    """Return the command line of `inplace`."""
    return [sys.executable, "-m", "inplace.cli", *arguments]


def run(*arguments: str, stdin: str | None = None, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run a command to its end, with these variables of the environment, and return what it printed."""
    return subprocess.run(
        command(*arguments),
        cwd=REPOSITORY,
        env=os.environ | variables,
        input=stdin,
        capture_output=True,
        text=True,
        timeout=RUN_S_MAX,
        check=False,
    )


def printed_by(*arguments: str, **variables: str) -> str:
    """Run a command that succeeds, with these variables; return what it printed."""
    done = run(*arguments, **variables)
    assert done.returncode == 0, done.stderr
    return done.stdout


def imported_by(*arguments: str, **variables: str) -> tuple[set[str], str]:
    """Run a command that succeeds, with these variables; return the modules that it imported, and what it printed."""
    done = run(*arguments, PYTHONPROFILEIMPORTTIME="1", **variables)
    assert done.returncode == 0, done.stderr
    imports = [line.rpartition("|")[2].strip() for line in done.stderr.splitlines() if line.startswith("import time:")]
    return set(imports), done.stdout


def subcommands() -> Mapping[str, Any]:
    """Return the commands of `inplace` by their names, as typer makes them."""
    group = typer.main.get_command(app)
    assert isinstance(group, TyperGroup)
    return group.commands


def demo_json(*arguments: str) -> dict[str, Any]:
    """Run a demo that succeeds; return what it says to programs."""
    found: dict[str, Any] = json.loads(printed_by("demo", "--json", *arguments).splitlines()[-1])
    return found


def processes(file: str) -> Iterator[tuple[int, bytes]]:
    """Yield the processes of this machine that we may read, each with a file of /proc."""
    for entry in Path("/proc").iterdir():
        with suppress(FileNotFoundError, PermissionError, ProcessLookupError):  # it ended, or is another user's
            if entry.name.isdigit():
                yield int(entry.name), (entry / file).read_bytes()


@contextmanager
def kept_demo(folder: Path, *arguments: str, **environment: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """Run a demo of two Pods that stays up, with its files in a folder; yield its process and its kubeconfig."""
    words, variables = command("demo", "--pods", "2", "--keep", *arguments), {"TMPDIR": str(folder)} | environment
    pipe, kubeconfig = subprocess.PIPE, ""
    with subprocess.Popen(
        words, cwd=REPOSITORY, env=os.environ | variables, stdout=pipe, stderr=pipe, text=True
    ) as demo:
        assert demo.stdout is not None
        try:
            last = ""
            while "stays up" not in (line := demo.stdout.readline()):
                assert line, "the demo ended before it was up"
                kubeconfig = kubeconfig or line.partition("KUBECONFIG=")[2].strip()
                last = line
            assert last == f"export KUBECONFIG={kubeconfig}\n", "the first line stands at the end again, in sight"
            yield demo, kubeconfig
        finally:
            demo.kill()


def run_here(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a command in this process, without the start of another, and return what it printed."""
    out, err = StringIO(), StringIO()
    with chdir(REPOSITORY), redirect_stdout(out), redirect_stderr(err), pytest.raises(SystemExit) as ended:
        app(arguments)
    code = ended.value.code
    assert isinstance(code, int), code
    return subprocess.CompletedProcess(arguments, code, out.getvalue(), err.getvalue())


def run_bytes(*arguments: str) -> bytes:
    """Run a command that succeeds; return its output, line ends as they are."""
    return subprocess.run(
        command(*arguments), cwd=REPOSITORY, capture_output=True, timeout=RUN_S_MAX, check=True
    ).stdout
