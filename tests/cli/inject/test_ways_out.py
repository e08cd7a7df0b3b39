"""A refusal of `inject` names every way out, and each of them works."""

from __future__ import annotations

from typing import Any

from inplace.common.kube.resources import KubeObject
from inplace.common.wire import names as wire
from tests.cli.injecting import as_yaml, documents_of, injected, refused


def changed(**worker: Any) -> list[KubeObject]:
    """Return the plain example's documents with other fields in its worker; None removes one."""
    documents = documents_of("plain.yaml")
    pod = documents[-1]["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    pod["containers"] = [{name: value for name, value in (container | worker).items() if value is not None}]
    return documents


def test_a_supervised_worker_without_a_command() -> None:
    """The ENTRYPOINT as the command; a sidecar needs none."""
    documents = changed(command=None)
    assert "ENTRYPOINT" in refused(as_yaml(documents), mode="supervisor")
    injected(as_yaml(changed(command=["/entry"])), mode="supervisor")
    injected(as_yaml(documents))


def deep(documents: list[KubeObject], depth: str) -> str:
    """Return documents whose JobSet asks for a depth, as a text."""
    documents[-1]["metadata"]["annotations"] = {wire.RESTART: depth}
    return as_yaml(documents)


def test_a_process_that_no_guard_can_restart() -> None:
    """The ENTRYPOINT as the command, or depth containers; here no guard can come by itself."""
    documents = changed(command=None, env=[{"name": "LD_AUDIT", "value": "/mine.so"}])
    words = refused(deep(documents, "process"))
    assert all(way in words for way in ("the worker's command", f"{wire.RESTART}: containers")), words
    injected(deep(changed(command=["/entry"]), "process"))
    injected(deep(documents, "containers"))
