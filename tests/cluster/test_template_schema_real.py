"""What the CRD says about the inside of a template, against the real kube-apiserver and its published schema."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from inplace.common.kube.resources import KubeObject
from inplace.deploy.template_schema import insert
from testbed.api_client import ApiClient
from testbed.control_plane import ControlPlane
from testbed.kube_client import CRD
from testbed.template_schema import TYPES, published, types_text
from tests.cluster.test_crd_real import install, jobsets, merged, refusal
from tests.conformance.api import NEWEST_ONLY
from tests.controller.manifests import changed, jobset
from tests.deploy.spelling_cases import PODS, WORKER
from tests.deploy.template_defaults import TEMPLATE_DEFAULTS

pytestmark = pytest.mark.asyncio(loop_scope="session")

APPLY = "application/apply-patch+yaml"


@pytest_asyncio.fixture(loop_scope="session")
async def api(control_plane: ControlPlane) -> AsyncIterator[ApiClient]:
    """Give a client of a server that serves JobSets."""
    async with control_plane.client() as client:
        await install(client)
        yield client


@NEWEST_ONLY
async def test_what_is_generated_is_of_this_kubernetes_version(control_plane: ControlPlane) -> None:
    """Generated from the document that this server publishes, the CRD and the types come out as they are."""
    openapi = await published(control_plane)
    assert insert(CRD.read_text(), openapi) == CRD.read_text()
    assert types_text(openapi) == TYPES.read_text()


def template(stored: KubeObject) -> dict[str, Any]:
    """Return a Pod's spec of the first replicatedJob."""
    spec: dict[str, Any] = stored["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]
    return spec


def without_field(path: str) -> KubeObject:
    """Return the object around the last field of a path, with what the lists on the way need."""
    name, _, rest = path.partition(".")
    if not rest:
        return {}
    inside = without_field(rest)
    if not name.endswith("[]"):
        return {name: inside}
    required = {"ports[]": {"containerPort": 80}, "imagePullSecrets[]": {}}.get(name, {"name": "a"})
    return {name.removesuffix("[]"): [required | inside]}


async def test_each_default_is_set(api: ApiClient, namespace: str) -> None:
    """A manifest that leaves out a field of the list gets its default, each at its place."""
    for number, (path, default) in enumerate(sorted(TEMPLATE_DEFAULTS.items())):
        manifest = jobset(f"default-{number}")
        found = template(manifest) | without_field(path)
        stored = await api.post(jobsets(namespace), merged(changed(manifest, f"{PODS}.spec", found), namespace))
        value: Any = template(stored)
        for name in path.split("."):
            value = value[name.removesuffix("[]")]
            value = value[0] if name.endswith("[]") else value
        assert value == default, path


async def test_a_field_of_a_newer_kubernetes_survives(api: ApiClient, namespace: str) -> None:
    """A field that nobody knows, at each level of a template, is stored as it came, and kept by a later change."""
    manifest = changed(jobset(), f"{PODS}.spec.new", {"a": [1]})
    manifest = changed(manifest, f"{WORKER}.ports", [{"containerPort": 80, "protocol": "TCP", "new": {"b": None}}])
    manifest = changed(manifest, f"{WORKER}.env", [{"name": "A", "valueFrom": {"newKeyRef": {"name": "c"}}}])
    await api.post(jobsets(namespace), merged(manifest, namespace))
    stored = await api.patch(f"{jobsets(namespace)}/train", {"metadata": {"labels": {"a": "b"}}})
    assert template(stored) == template(manifest)


async def test_two_appliers_share_a_list(api: ApiClient, namespace: str) -> None:
    """Server-side apply merges containers, ports and variables by their keys, as it does for a Pod."""

    async def apply(manager: str, **container: Any) -> str | None:
        manifest = merged(changed(jobset(), f"{PODS}.spec.containers", [{"name": "worker"} | container]), namespace)
        query = {"fieldManager": manager}
        path = f"{jobsets(namespace)}/train"
        return await refusal(api.text("PATCH", path, body=manifest, content_type=APPLY, query=query))

    assert await apply("a", image="worker:1", ports=[{"containerPort": 80}], env=[{"name": "A", "value": "1"}]) is None
    assert await apply("b", image="worker:1", ports=[{"containerPort": 81}], env=[{"name": "B", "value": "2"}]) is None
    worker = template(await api.get(f"{jobsets(namespace)}/train"))["containers"][0]
    assert [(port["containerPort"], port["protocol"]) for port in worker["ports"]] == [(80, "TCP"), (81, "TCP")]
    assert worker["env"] == [{"name": "A", "value": "1"}, {"name": "B", "value": "2"}]


async def test_a_key_twice_is_refused(api: ApiClient, namespace: str) -> None:
    """A variable that stands twice in a new manifest is refused with its place, as upstream's CRD does."""
    twice = [{"name": "A", "value": "1"}, {"name": "A", "value": "2"}]
    said = await refusal(api.post(jobsets(namespace), merged(changed(jobset(), f"{WORKER}.env", twice), namespace)))
    assert said is not None
    assert "containers[0].env[1]: Duplicate value" in said
