"""A real kubectl against the embedded API server over loopback HTTP.

kubectl is optional on a developer's machine: without it these tests skip and say how to get it.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
from collections.abc import AsyncIterator
from pathlib import Path
from random import Random

import pytest
import pytest_asyncio

from inplace.common.kube.client import KubeClient
from inplace.common.kube.clock import LoopClock
from inplace.common.kube.resources import PODS, KubeObject
from inplace.simulator.apiserver import ApiServer, ApiServerOptions, HttpFront, InMemoryTransport, LogRequest
from testbed.kubectl import need_kubectl
from tests.conformance.widgets import CRD

KUBECTL = shutil.which("kubectl")
DEADLINE_S = 60.0
"""kubectl starts in 0.1 s; after a minute without an end it waits for ever."""

pytestmark = pytest.mark.asyncio


@pytest.fixture(autouse=True)
def _kubectl() -> None:
    """Skip where there is no kubectl."""
    need_kubectl()


POD: KubeObject = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "p", "labels": {"app": "x"}},
    "spec": {"containers": [{"name": "c", "image": "i:1"}], "nodeName": "n1"},
}
JOB: KubeObject = {
    "apiVersion": "batch/v1",
    "kind": "Job",
    "metadata": {"name": "j"},
    "spec": {"template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i:1"}]}}},
}
WIDGET: KubeObject = {"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "w"}, "spec": {"size": 3}}


async def _log(pod: KubeObject, wanted: LogRequest) -> AsyncIterator[bytes]:
    yield f"{pod['metadata']['name']}/{wanted.container} says hello\n".encode()


class Kubectl:
    """Runs kubectl with a kubeconfig and a home of its own."""

    def __init__(self, server: ApiServer, url: str, directory: Path) -> None:
        self.server = server
        self.client = KubeClient(InMemoryTransport(server), user_agent="test/1", field_manager="test")
        self.directory = directory
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "s", "cluster": {"server": url}}],
            "users": [{"name": "u", "user": {"token": "user:admin"}}],
            "contexts": [{"name": "s", "context": {"cluster": "s", "user": "u"}}],
            "current-context": "s",
        }
        (directory / "config").write_text(json.dumps(config))
        self._environment = {**os.environ, "KUBECONFIG": str(directory / "config"), "HOME": str(directory)}

    async def start(self, *arguments: str) -> asyncio.subprocess.Process:
        """Start kubectl and return its process."""
        assert KUBECTL is not None
        return await asyncio.create_subprocess_exec(
            KUBECTL, *arguments, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE, env=self._environment
        )

    async def run(self, *arguments: str) -> str:
        """Run kubectl to its end and return its output; fail with its words when it fails."""
        process = await self.start(*arguments)
        async with asyncio.timeout(DEADLINE_S):
            out, err = await process.communicate()
        assert process.returncode == 0, f"kubectl {' '.join(arguments)}: {err.decode()}"
        return out.decode()

    def file(self, obj: KubeObject) -> str:
        """Write a manifest and return its path."""
        path = self.directory / f"{obj['kind']}.json"
        path.write_text(json.dumps(obj))
        return str(path)


@pytest_asyncio.fixture
async def kubectl(tmp_path: Path) -> AsyncIterator[Kubectl]:
    """A server with Widgets, and kubectl pointed at it."""
    server = ApiServer(clock=LoopClock(), rng=Random(1), options=ApiServerOptions(log_source=_log))
    server.load([CRD])
    front = HttpFront(server)
    url = await front.start()
    background = asyncio.create_task(server.run())
    try:
        yield Kubectl(server, url, tmp_path)
    finally:
        background.cancel()
        await asyncio.gather(background, return_exceptions=True)
        await front.stop()


async def test_get_prints_tables(kubectl: Kubectl) -> None:
    """`kubectl get` of several kinds in all namespaces prints their rows, custom columns included."""
    for obj in (POD, JOB, WIDGET):
        await kubectl.run("create", "-f", kubectl.file(obj))
    printed = await kubectl.run("get", "pods,jobs,widgets,services,nodes,leases,events,namespaces", "-A")
    assert "pod/p" in printed
    assert "0/1     Pending" in printed
    assert "job.batch/j" in printed
    assert "widget.example.com/w   3" in printed
    assert "namespace/default" in printed
    assert "SIZE" in await kubectl.run("get", "wd")
    wide = await kubectl.run("get", "pods", "-o", "wide")
    assert "NOMINATED NODE" in wide
    assert json.loads(await kubectl.run("get", "pod", "p", "-o", "json"))["spec"]["nodeName"] == "n1"


async def test_apply_creates_updates_and_prunes(kubectl: Kubectl) -> None:
    """Client-side apply creates, says unchanged, configures, and removes what left the manifest."""
    labelled = JOB | {"metadata": {"name": "j", "labels": {"a": "1", "b": "2"}}}
    assert "created" in await kubectl.run("apply", "-f", kubectl.file(labelled))
    assert "unchanged" in await kubectl.run("apply", "-f", kubectl.file(labelled))
    fewer = JOB | {"metadata": {"name": "j", "labels": {"a": "3"}}}
    assert "configured" in await kubectl.run("apply", "-f", kubectl.file(fewer))
    assert "created" in await kubectl.run("apply", "-f", kubectl.file(WIDGET))
    assert "configured" in await kubectl.run("apply", "-f", kubectl.file(WIDGET | {"spec": {"size": 4}}))
    labels = json.loads(await kubectl.run("get", "job", "j", "-o", "json"))["metadata"]["labels"]
    assert labels == {"a": "3"}


async def test_server_side_apply(kubectl: Kubectl) -> None:
    """`kubectl apply --server-side` creates and updates, and reports a conflict."""
    await kubectl.run("apply", "--server-side", "-f", kubectl.file(WIDGET))
    await kubectl.run("apply", "--server-side", "-f", kubectl.file(WIDGET | {"spec": {"size": 5}}))
    process = await kubectl.start(
        "apply", "--server-side", "--field-manager=other", "-f", kubectl.file(WIDGET | {"spec": {"size": 6}})
    )
    _, err = await process.communicate()
    assert process.returncode == 1
    assert b'conflict with "kubectl"' in err
    assert b".spec.size" in err


async def test_strict_validation_reaches_the_user(kubectl: Kubectl) -> None:
    """A typo in a custom object is an error and not a loss: kubectl leaves validation to the server."""
    process = await kubectl.start("create", "-f", kubectl.file(WIDGET | {"spec": {"sizes": 5}}))
    _, err = await process.communicate()
    assert process.returncode == 1
    assert b'unknown field "spec.sizes"' in err


async def test_a_typed_client_is_told_what_works(kubectl: Kubectl) -> None:
    """`kubectl create configmap` sends protobuf, which this server does not take; the way that it names works."""
    make = ("create", "configmap", "settings", "--from-literal=lr=0.1")
    process = await kubectl.start(*make)
    _, err = await process.communicate()
    assert process.returncode == 1
    assert b"`kubectl create ... --dry-run=client -o yaml | kubectl create -f -`" in err
    written = kubectl.directory / "settings.yaml"
    written.write_text(await kubectl.run(*make, "--dry-run=client", "-o", "yaml"))
    assert "created" in await kubectl.run("create", "-f", str(written))


RUNNING = {"name": "c", "image": "i", "imageID": "", "ready": True, "restartCount": 0, "state": {"running": {}}}
RUNS = json.dumps({"status": {"containerStatuses": [RUNNING]}})


async def test_describe_annotate_label_patch_logs(kubectl: Kubectl) -> None:
    """The everyday verbs on a Pod work."""
    await kubectl.run("create", "-f", kubectl.file(POD))
    await kubectl.run("annotate", "pod", "p", "epoch=3")
    await kubectl.run("label", "pod", "p", "app=y", "--overwrite")
    await kubectl.run("patch", "pod", "p", "--patch", '{"metadata":{"labels":{"more":"z"}}}')
    described = await kubectl.run("describe", "pod", "p")
    assert "epoch: 3" in described
    assert "app=y" in described
    assert "more=z" in described
    await kubectl.run("patch", "pod", "p", "--subresource=status", "--type=merge", "--patch", RUNS)
    assert await kubectl.run("logs", "p") == "p/c says hello\n"
    assert "yes" in await kubectl.run("auth", "can-i", "delete", "pods")


async def test_watch_and_wait(kubectl: Kubectl) -> None:
    """`get -w` prints a change as it happens, and `wait` returns when a condition turns true."""
    await kubectl.run("create", "-f", kubectl.file(POD))
    watching = await kubectl.start("get", "pods", "-w", "--no-headers")
    assert watching.stdout is not None
    try:
        async with asyncio.timeout(DEADLINE_S):
            assert b"Pending" in await watching.stdout.readline()
            waiting = asyncio.create_task(kubectl.run("wait", "pod/p", "--for=condition=Ready", "--timeout=30s"))
            ready = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
            await kubectl.client.patch(PODS, "default", "p", {"status": ready}, subresource="status")
            assert b"Running" in await watching.stdout.readline()
            assert "condition met" in await waiting
    finally:
        watching.terminate()
        await watching.communicate()


async def test_delete_waits_for_the_kubelet(kubectl: Kubectl) -> None:
    """`kubectl delete` of a bound Pod returns when the kubelet has let go; --force does not wait."""
    await kubectl.run("create", "-f", kubectl.file(POD))
    marked = asyncio.Event()
    leave = kubectl.server.store.listen(lambda key, event: marked.set())
    deleting = asyncio.create_task(kubectl.run("delete", "pod", "p"))
    async with asyncio.timeout(DEADLINE_S):
        await marked.wait()
        assert not deleting.done()
        await kubectl.client.delete(PODS, "default", "p", grace_period_s=0)
        assert 'pod "p" deleted' in await deleting
    leave()
    await kubectl.run("create", "-f", kubectl.file(POD))
    await kubectl.run("delete", "pod", "p", "--force", "--grace-period=0")
    assert await kubectl.run("get", "pods", "--no-headers", "--ignore-not-found") == ""


async def test_discovery(kubectl: Kubectl) -> None:
    """`api-resources`, `version` and `wait --for=condition=established` find what they look for."""
    listed = await kubectl.run("api-resources")
    assert "widgets" in listed
    assert "wd" in listed
    assert "1.37" in await kubectl.run("version")
    await kubectl.run("wait", "crd/widgets.example.com", "--for=condition=established", "--timeout=10s")
