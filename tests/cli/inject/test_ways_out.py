"""A refusal of `inject` names every way out, and each of them works."""

from __future__ import annotations

from typing import Any

import yaml

from inplace.common.kube.resources import KubeObject
from inplace.common.wire import names as wire
from tests.cli.injecting import as_yaml, example, injected, pod_spec_of, refused


def changed(**worker: Any) -> list[KubeObject]:
    """Return the plain example's documents with other fields in its worker; None removes one."""
    documents = list(yaml.safe_load_all(example("plain.yaml")))
    (container,) = pod_spec_of(yaml.safe_dump(documents[-1]))["containers"]
    container |= worker
    kept = {name: value for name, value in container.items() if value is not None}
    documents[-1]["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]["containers"] = [kept]
    return documents


def test_a_supervised_worker_without_a_command() -> None:
    """The ENTRYPOINT as the command; a sidecar needs none."""
    documents = changed(command=None)
    assert "ENTRYPOINT" in refused(as_yaml(documents), mode="supervisor")
    injected(as_yaml(changed(command=["/entry"])), mode="supervisor")
    injected(as_yaml(documents))


def test_a_process_that_no_guard_can_restart() -> None:
    """The ENTRYPOINT as the command, or depth containers; here no guard can come by itself."""
    documents = changed(command=None, env=[{"name": "LD_AUDIT", "value": "/mine.so"}])
    words = refused(as_yaml(documents), depth="process")
    assert all(way in words for way in ("the worker's command", f"{wire.RESTART_DEPTH}: containers")), words
    injected(as_yaml(changed(command=["/entry"])), depth="process")
    injected(as_yaml(documents), depth="containers")
