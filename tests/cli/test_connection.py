"""No cluster, a wrong one, a proxy, no rights, no such JobSet: each ends a command with words and its own code."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Thread

import pytest

from inplace.cli.connection import Connection, Target, connected, did_you_mean, refusal_of
from inplace.cli.group.read import read_jobset
from inplace.cli.lint.lint import LintOptions, run_lint
from inplace.cli.refusal import CliExit, RefusalError
from inplace.cli.status.explain import run_explain
from inplace.cli.status.history import run_history
from inplace.cli.status.report import run_report
from inplace.cli.status.restart import run_restart
from inplace.cli.status.status import run_status
from inplace.cli.status.timeline import run_timeline
from inplace.common.kube.errors import Forbidden, error_from_status
from tests.cli.injecting import EXAMPLES
from tests.cli.scenes import connection, training

pytestmark = pytest.mark.virtual_time


def kubeconfig(path: Path, server: str, *contexts: str, namespace: str = "") -> str:
    """Write a kubeconfig whose contexts all lead to one server; the first is the current one."""
    context = {"cluster": "c", "user": "u"} | ({"namespace": namespace} if namespace else {})
    content = {
        "clusters": [{"name": "c", "cluster": {"server": server}}],
        "users": [{"name": "u", "user": {"token": "user:admin"}}],
        "contexts": [{"name": name, "context": context} for name in contexts],
        "current-context": contexts[0],
    }
    path.write_text(json.dumps(content))
    return str(path)


COMMANDS: dict[str, Callable[[str], int]] = {
    "status": lambda path: run_status(Target(kubeconfig=path), None, output="table", watch=False),
    "status NAME": lambda path: run_status(Target(kubeconfig=path), "train", output="table", watch=False),
    "status --watch": lambda path: run_status(Target(kubeconfig=path), "train", output="table", watch=True),
    "explain": lambda path: run_explain(Target(kubeconfig=path), "train", output="table"),
    "history": lambda path: run_history(Target(kubeconfig=path), "train", output="table"),
    "report": lambda path: run_report(
        Target(kubeconfig=path), selector=None, everywhere=False, price=None, output="table"
    ),
    "timeline": lambda path: run_timeline(Target(kubeconfig=path), "train", output="table"),
    "restart": lambda path: run_restart(Target(kubeconfig=path), "train", wait=True, timeout_s=5.0),
    "lint": lambda path: run_lint(str(EXAMPLES / "train.yaml"), LintOptions(kubeconfig=path, cluster=True)),
}
ALIKE = [name for name in COMMANDS if name != "lint"]  # their words and codes are the same
LOGIN = b"<html><title>Sign in</title></html>"
DEEP = b'{"a":' * 200_000
ANSWERS = {
    "a login page": (b"HTTP/1.1 200 OK\r\ncontent-type: text/html\r\n", LOGIN, "text/html, 'Sign in'"),
    "a redirect without a body": (b"HTTP/1.1 302 Found\r\nlocation: https://login\r\n", b"", "to 'https://login'"),
    "deep JSON": (b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n", DEEP, "it nests too deep"),
    "JSON of another service": (b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n", b"{}", "saw '{}'"),
    "no JSON": (b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n", b"hello", "saw 'hello'"),
}


@contextmanager
def proxy(head: bytes, body: bytes) -> Iterator[str]:
    """Answer every request with the same bytes; give the address."""
    answer = head + b"content-length: %d\r\nconnection: close\r\n\r\n" % len(body) + body
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


@contextmanager
def free_port() -> Iterator[int]:
    """Reserve a port on which nothing listens."""
    with socket.socket() as reserved:
        reserved.bind(("127.0.0.1", 0))
        yield reserved.getsockname()[1]


@pytest.mark.parametrize("name", ALIKE)
def test_nobody_answers(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A server that does not answer is named with its context."""
    with free_port() as port:
        file = kubeconfig(tmp_path / "config", f"http://127.0.0.1:{port}", "earth")
        assert COMMANDS[name](file) == CliExit.NO_CLUSTER
    said = capsys.readouterr().err
    assert said.startswith(f"inplace {name.split()[0]}: no answer from the cluster of context earth: cannot connect")
    assert f"127.0.0.1:{port}" in said
    assert "--context" in said


@pytest.mark.parametrize(
    ("content", "said"),
    [(None, "expected a kubeconfig at"), ("{", "expected JSON or YAML"), ("[]", "expected a mapping with clusters")],
)
def test_no_kubeconfig(
    content: str | None, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A missing or unreadable kubeconfig is named."""
    file = tmp_path / "config"
    if content is not None:
        file.write_text(content)
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    monkeypatch.setenv("KUBECONFIG", str(file))
    assert run_status(Target(), "train", output="table", watch=False) == CliExit.NO_CLUSTER
    assert said in capsys.readouterr().err


def test_a_wrong_context_is_told_with_the_right_ones(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """An unknown context is refused with the known ones."""
    file = kubeconfig(tmp_path / "config", "http://127.0.0.1:1", "production", "staging")
    target = Target(kubeconfig=file, context="prodution")
    assert run_status(target, "train", output="table", watch=False) == CliExit.NO_CLUSTER
    assert "did you mean production?" in capsys.readouterr().err


def test_the_namespace_is_the_option_s_then_the_context_s(tmp_path: Path) -> None:
    """The namespace is the option's, else the context's, else `default`; the context is named beside it."""
    with_one = kubeconfig(tmp_path / "a", "http://127.0.0.1:1", "earth", namespace="training")
    without = kubeconfig(tmp_path / "b", "http://127.0.0.1:1", "earth")

    async def namespaces() -> list[str]:
        found = []
        for target in (
            Target(kubeconfig=with_one, namespace="x"),
            Target(kubeconfig=with_one),
            Target(kubeconfig=without),
        ):
            async with connected(target) as there:
                found.append(there.place)
        return found

    assert asyncio.run(namespaces()) == [f"namespace {name} of context earth" for name in ("x", "training", "default")]


@pytest.mark.parametrize("name", ALIKE)
def test_no_rights(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A missing right is named with verb and resource, in the server's words."""
    message = 'User "eve" cannot get resource "jobsets"'
    body = json.dumps({"kind": "Status", "code": 403, "reason": "Forbidden", "message": message}).encode()
    with proxy(b"HTTP/1.1 403 Forbidden\r\ncontent-type: application/json\r\n", body) as url:
        assert COMMANDS[name](kubeconfig(tmp_path / "config", url, "earth")) == CliExit.NOT_ALLOWED
    assert f"inplace {name.split()[0]}: not allowed: {message}" in capsys.readouterr().err


@pytest.mark.parametrize("kind", ANSWERS)
def test_no_command_ends_in_a_traceback(kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Every command that asks a cluster says what answered instead, and ends with the code of no cluster."""
    head, body, words = ANSWERS[kind]
    with proxy(head, body) as url:
        path = kubeconfig(tmp_path / "config", url, "prod")
        for name, command in COMMANDS.items():
            code = command(path)
            printed = capsys.readouterr()
            assert code == (2 if name == "lint" else CliExit.NO_CLUSTER), (name, printed)
            assert words in printed.err, (name, printed)
            assert len(printed.err) < 1_500, name


def test_pods_that_may_not_be_read_are_named() -> None:
    """When only the JobSet may be read, the message names the Pods."""
    error = error_from_status({"code": 403, "reason": "Forbidden", "message": 'cannot list resource "pods"'})
    assert isinstance(error, Forbidden)
    refused = refusal_of(error, Target())
    assert refused.code is CliExit.NOT_ALLOWED
    assert 'cannot list resource "pods"' in str(refused)
    assert "kubectl auth can-i --list" in str(refused)


@pytest.mark.parametrize(
    ("name", "namespace", "said"),
    [
        ("trian", "default", "did you mean train?"),
        ("xyz", "default", "there is train"),
        ("train", "other", "but one in default: use --namespace"),
        ("xyz", "other", "this namespace has none at all"),
    ],
)
async def test_no_such_jobset(name: str, namespace: str, said: str) -> None:
    """An unknown JobSet is refused with similar names and other namespaces."""
    async with training(1) as cluster:
        there = Connection(connection(cluster).client, namespace, "earth")
        with pytest.raises(RefusalError, match=said) as refused:
            await read_jobset(there, name)
        assert f"in namespace {namespace} of context earth" in str(refused.value)
        assert refused.value.code is CliExit.NOT_FOUND


def test_no_definition_is_another_thing() -> None:
    """A cluster without the JobSet CRD gets its own message."""
    error = error_from_status({"code": 404, "reason": "NotFound", "message": "the server could not find the resource"})
    assert "does not know JobSets" in str(refusal_of(error, Target()))


def test_hints() -> None:
    """The hint lists similar names, all of a few names, or their number."""
    assert did_you_mean("tain", ["train", "eval"]) == "did you mean train?"
    assert did_you_mean("x", ["b", "a"]) == "there is a, b"
    assert did_you_mean("x", [f"job{n}" for n in range(9)]) == "there are 9 others"
