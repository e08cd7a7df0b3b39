"""spec.network: the headless Service, its name, and the host names of Pods."""

from __future__ import annotations

from typing import Any, Final

import pytest

from inplace.common.kube.resources import SERVICES, KubeObject
from testbed.waiting import eventually
from tests.cluster.features.stage import Stage
from tests.controller.crew import exists
from tests.controller.manifests import changed, jobset

pytestmark = pytest.mark.asyncio(loop_scope="session")

CONTAINERS: Final = "spec.replicatedJobs.0.template.spec.template.spec"
# spec.network, the Service's name and publishNotReadyAddresses; None for no Service.
NETWORKS: Final[dict[str, tuple[KubeObject | None, tuple[str, bool] | None]]] = {
    "absent": (None, ("train", True)),
    "null": ({"subdomain": None, "enableDNSHostnames": None}, ("train", True)),
    "empty": ({}, ("train", True)),
    "hostnames_on": ({"enableDNSHostnames": True}, ("train", True)),
    "hostnames_off": ({"enableDNSHostnames": False}, None),
    "subdomain": ({"subdomain": "mesh"}, ("mesh", True)),
    "subdomain_and_off": ({"enableDNSHostnames": False, "subdomain": "mesh"}, None),
    "only_ready_addresses": ({"publishNotReadyAddresses": False}, ("train", False)),
    "all": ({"enableDNSHostnames": True, "subdomain": "mesh", "publishNotReadyAddresses": False}, ("mesh", False)),
}


@pytest.mark.parametrize("name", NETWORKS)
async def test_networks(stage: Stage, name: str) -> None:
    """The Service is headless, selects the JobSet's Pods, and is owned; Pods have its name as their subdomain."""
    network, wanted = NETWORKS[name]
    given: dict[str, Any] = {} if network is None else {"network": network}
    jobs = await stage.start(jobset(strategy=None, **given))
    pod = jobs["train-workers-0"]["spec"]["template"]["spec"]
    if wanted is None:
        assert "subdomain" not in pod
        await stage.be_ready("train-workers-0")
        await stage.counts_are("workers", ready=1, active=1)
        assert (await stage.client.list(SERVICES, stage.namespace))["items"] == []
        return
    subdomain, publish = wanted
    assert pod["subdomain"] == subdomain
    await eventually(lambda: exists(stage.client, SERVICES, stage.namespace, subdomain), True)
    (service,) = (await stage.client.list(SERVICES, stage.namespace))["items"]
    spec = service["spec"]
    assert (spec["clusterIP"], spec["selector"]) == ("None", {"jobset.sigs.k8s.io/jobset-name": "train"})
    assert spec.get("publishNotReadyAddresses", False) is publish
    assert spec.get("ports") is None
    (owner,) = service["metadata"]["ownerReferences"]
    assert (owner["uid"], owner["controller"]) == ((await stage.jobset())["metadata"]["uid"], True)


async def test_a_deleted_service_comes_back(stage: Stage) -> None:
    """A deleted Service is created again."""
    await stage.start(jobset(strategy=None))
    await eventually(lambda: exists(stage.client, SERVICES, stage.namespace, "train"), True)
    before = (await stage.client.get(SERVICES, stage.namespace, "train"))["metadata"]["uid"]
    await stage.client.delete(SERVICES, stage.namespace, "train")

    async def is_new() -> bool:
        return bool((await stage.client.get(SERVICES, stage.namespace, "train"))["metadata"]["uid"] != before)

    await eventually(is_new, True)


async def test_a_foreign_service_is_left_alone(stage: Stage) -> None:
    """A foreign Service of that name is left as it is; one that does not lead to the Pods is told, with the cure."""
    mine: dict[str, Any] = {"metadata": {"name": "train"}, "spec": {"clusterIP": "None", "selector": {"a": "b"}}}
    stored = await stage.client.create(SERVICES, stage.namespace, {"apiVersion": "v1", "kind": "Service"} | mine)
    await stage.start(jobset(strategy=None))
    await stage.be_ready("train-workers-0")
    await stage.counts_are("workers", ready=1, active=1)
    found = await stage.client.get(SERVICES, stage.namespace, "train")
    assert (found["metadata"]["uid"], found["spec"]["selector"]) == (stored["metadata"]["uid"], {"a": "b"})
    (warning,) = await stage.warnings()
    assert "expected the name of a headless Service" in warning
    assert "delete service" in warning


def with_port(number: int) -> KubeObject:
    """Return a JobSet whose container and init container have a port each."""
    manifest = changed(jobset(strategy=None), f"{CONTAINERS}.containers.0.ports", [{"containerPort": number}])
    agent = {"name": "agent", "image": "agent:1", "ports": [{"containerPort": 8081}]}
    return changed(manifest, f"{CONTAINERS}.initContainers", [agent])


async def ports(stage: Stage) -> list[KubeObject]:
    """Return the Service's ports."""
    return list((await stage.client.get(SERVICES, stage.namespace, "train"))["spec"].get("ports") or ())


async def test_ports(stage: Stage) -> None:
    """The Service has the containers' ports, named after protocol and number; those that somebody changed come back."""
    await stage.start(with_port(29500))
    wanted = [{"name": "tcp-29500", "protocol": "TCP", "port": 29500, "targetPort": 29500}]
    await eventually(lambda: ports(stage), wanted)
    other = {"name": "mine", "port": 1}
    for spec in ({"ports": None}, {"ports": [other]}):
        await stage.client.patch(SERVICES, stage.namespace, "train", {"spec": spec})
        await eventually(lambda: ports(stage), wanted)
    assert await stage.warnings() == []


async def test_ports_of_a_foreign_service(stage: Stage) -> None:
    """A foreign Service keeps its ports."""
    mine: dict[str, Any] = {"metadata": {"name": "train"}, "spec": {"clusterIP": "None", "selector": {"a": "b"}}}
    await stage.client.create(SERVICES, stage.namespace, {"apiVersion": "v1", "kind": "Service"} | mine)
    await stage.start(with_port(29500))
    await stage.be_ready("train-workers-0")
    await stage.counts_are("workers", ready=1, active=1)
    assert await ports(stage) == []
