"""The real bash and the real kubectl complete names: in bounded time, and silently where there is no cluster."""

from __future__ import annotations

import asyncio
import os
import pty
import shutil
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from inplace.cli.options import EXIT_S_MAX
from inplace.simulator.cluster.cluster import Cluster
from tests.cli.injecting import example_of
from tests.cli.test_connection import kubeconfig

PROGRAMS = Path(sys.executable).parent
FOR_KUBECTL = PROGRAMS / "kubectl_complete-inplace"
BASH, KUBECTL = shutil.which("bash"), shutil.which("kubectl")
TYPED_S_MAX = 60.0
START_S_MAX = 20.0  # of an interpreter, on a machine that does other work


def environment(path: str) -> dict[str, str]:
    """Return the environment of somebody who has our programs in the PATH."""
    return os.environ | {"KUBECONFIG": path, "PATH": f"{PROGRAMS}{os.pathsep}{os.environ['PATH']}", "TERM": "dumb"}


def kubectl_asks(path: str, *words: str) -> tuple[list[str], str]:
    """Return the candidates for the last word, and the directive, as kubectl gets them; nothing else is printed."""
    done = subprocess.run(
        [FOR_KUBECTL, *words], env=environment(path), capture_output=True, text=True, check=True, timeout=TYPED_S_MAX
    )
    assert done.stderr == ""
    *found, directive = done.stdout.splitlines()
    return found, directive


@pytest.mark.asyncio
async def test_names_come_from_the_cluster(tmp_path: Path) -> None:
    """The helper of kubectl completes names, commands and options; so do the real bash and kubectl."""
    async with Cluster(runtime="model", serve_http=True) as cluster:
        await cluster.apply(example_of(2))
        path = str(cluster.kubeconfig("admin"))
        asked = {
            ("status", ""): ["train"],
            ("explain", "tr"): ["train"],
            ("status", "x"): [],
            ("logs", "-n", "kube-pu", "train"): [],
            ("logs", "train", "-n", "kube-p"): ["kube-public"],
            ("restart", "train", "--wa"): ["--wait"],
            ("expl",): ["explain"],
            ("status", "-n", "kube-public", ""): [],
        }
        for words, expected in asked.items():
            found, directive = await asyncio.to_thread(kubectl_asks, path, *words)
            assert (found, directive) == (expected, ":4" if expected else ":0"), words
        if BASH is not None:
            assert "status train " in await asyncio.to_thread(_typed_into_bash, path, "inplace status tr")
        if KUBECTL is not None:
            command = [KUBECTL, "__complete", "inplace", "status", ""]
            done = await asyncio.to_thread(
                subprocess.run, command, env=environment(path), capture_output=True, text=True, check=True
            )
            assert done.stdout.splitlines() == ["train", ":4"]


def test_contexts_come_from_the_kubeconfig(tmp_path: Path) -> None:
    """A context is completed without asking any cluster."""
    path = tmp_path / "kubeconfig"
    kubeconfig(path, "http://127.0.0.1:9", "near", "far")
    assert kubectl_asks(str(path), "status", "--context", "n") == (["near"], ":4")


def test_no_cluster_is_silent(tmp_path: Path) -> None:
    """No kubeconfig, an unreadable one and a closed port complete nothing and say nothing."""
    broken, closed = tmp_path / "broken", tmp_path / "closed"
    broken.write_text("[")
    kubeconfig(closed, "http://127.0.0.1:9", "c")
    for path in (tmp_path / "absent", broken, closed):
        for words in (("status", ""), ("status", "--context", "x")):
            assert kubectl_asks(str(path), *words) == ([], ":0")


def test_a_server_that_never_answers_is_given_up(tmp_path: Path) -> None:
    """A completion ends within its bound although the server takes the connection and says nothing."""
    path = tmp_path / "kubeconfig"
    with socket.create_server(("127.0.0.1", 0)) as server:
        kubeconfig(path, f"http://127.0.0.1:{server.getsockname()[1]}", "c")
        began_s = time.monotonic()
        assert kubectl_asks(str(path), "status", "") == ([], ":0")
    assert time.monotonic() - began_s < EXIT_S_MAX + START_S_MAX


def _typed_into_bash(path: str, line: str) -> str:
    """Type a line and a tab into a bash on a terminal; return what the terminal shows once the line is longer."""
    script = subprocess.run(
        [PROGRAMS / "inplace"],
        env=environment(path) | {"_INPLACE_COMPLETE": "source_bash"},
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    file = Path(path).parent / "completion.bash"
    file.write_text(script)
    assert BASH is not None
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        [BASH, "--norc", "--noprofile", "-i"],
        env=environment(path) | {"PS1": "$ "},
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
    ) as bash:
        os.close(theirs)
        os.set_blocking(ours, False)
        shown, deadline_s = "", time.monotonic() + TYPED_S_MAX
        os.write(ours, f"source {file}\n{line}\t".encode())
        while f"{line}ain " not in shown and time.monotonic() < deadline_s:
            try:
                shown += os.read(ours, 65_536).decode(errors="replace")
            except BlockingIOError:
                time.sleep(0.05)
        bash.kill()
        os.close(ours)
    return shown
