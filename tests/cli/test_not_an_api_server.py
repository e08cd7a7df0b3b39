"""A proxy answers instead of the API server: each command ends with words, and without a traceback."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Thread

import pytest

from inplace.cli.connection import Target
from inplace.cli.lint.lint import LintOptions, run_lint
from inplace.cli.refusal import CliExit
from inplace.cli.status.explain import run_explain
from inplace.cli.status.nodes import run_nodes
from inplace.cli.status.restart import run_restart
from inplace.cli.status.status import run_status
from inplace.cli.status.timeline import run_timeline
from tests.cli.injecting import EXAMPLES
from tests.cli.test_connection import kubeconfig

COMMANDS: dict[str, Callable[[str], int]] = {
    "status": lambda path: run_status(None, Target(kubeconfig=path), output="table", watch=False),
    "status NAME": lambda path: run_status("train", Target(kubeconfig=path), output="table", watch=False),
    "status --watch": lambda path: run_status("train", Target(kubeconfig=path), output="table", watch=True),
    "explain": lambda path: run_explain("train", Target(kubeconfig=path), output="table"),
    "nodes": lambda path: run_nodes("train", Target(kubeconfig=path), output="table"),
    "timeline": lambda path: run_timeline("train", Target(kubeconfig=path), svg=None, output="table"),
    "restart": lambda path: run_restart("train", Target(kubeconfig=path), wait=True, timeout_s=5.0),
    "lint": lambda path: run_lint(str(EXAMPLES / "train.yaml"), LintOptions(kubeconfig=path, cluster=True)),
}
PAGE = b"<html><title>Sign in</title></html>"
DEEP = b'{"a":' * 200_000
ANSWERS = {
    "a login page": (b"HTTP/1.1 200 OK\r\ncontent-type: text/html\r\n", PAGE, "text/html, 'Sign in'"),
    "a redirect without a body": (b"HTTP/1.1 302 Found\r\nlocation: https://login\r\n", b"", "to 'https://login'"),
    "deep JSON": (b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n", DEEP, "it nests too deep"),
    "JSON of another service": (b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n", b"{}", "saw '{}'"),
    "no JSON": (b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n", b"hello", "saw 'hello'"),
}


@contextmanager
def proxy(answer: bytes) -> Iterator[str]:
    """Answer every request with the same bytes; give the address."""
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:  # closed
                return
            with connection:
                connection.recv(65536)
                connection.sendall(answer)

    Thread(target=serve, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()


@pytest.mark.parametrize("kind", ANSWERS)
def test_no_command_ends_in_a_traceback(kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Every command that asks a cluster says what answered instead, and ends with the code of no cluster."""
    head, body, words = ANSWERS[kind]
    answer = head + b"content-length: %d\r\nconnection: close\r\n\r\n" % len(body) + body
    with proxy(answer) as url:
        path = kubeconfig(tmp_path / "config", url, "prod")
        for name, command in COMMANDS.items():
            code = command(path)
            printed = capsys.readouterr()
            assert code == (2 if name == "lint" else CliExit.NO_CLUSTER), (name, printed)
            assert words in printed.err, (name, printed)
            assert len(printed.err) < 1_500, name
