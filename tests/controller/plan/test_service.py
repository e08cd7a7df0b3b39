"""The headless Service: its name, its selector, and the ports of the containers."""

from __future__ import annotations

from typing import Any

import pytest

from inplace.common.jobset.form import PORTS_MAX
from inplace.common.jobset.service import SERVICE_CODEC
from inplace.common.kube.resources import JOBSETS, SERVICES, KubeObject
from inplace.common.wire import names as wire
from inplace.controller.plan.actions import CreateService, UpdateService
from inplace.controller.plan.problems.report import known_problems
from tests.controller.manifests import changed, jobset, replicated_job
from tests.controller.objects import with_identity
from tests.controller.plan.planner_world import PlannerWorld, settled
from tests.controller.rig import Rig

pytestmark = pytest.mark.virtual_time

POD_SPEC = "spec.replicatedJobs.0.template.spec.template.spec"


def port(number: int, protocol: str = "TCP") -> KubeObject:
    """Return a port of the Service."""
    return {"name": f"{protocol.lower()}-{number}", "protocol": protocol, "port": number, "targetPort": number}


def with_ports(*ports: Any, **spec: Any) -> KubeObject:
    """Return a JobSet whose container has these ports."""
    return changed(jobset(**spec), f"{POD_SPEC}.containers.0.ports", list(ports))


def service_of(manifest: KubeObject) -> KubeObject:
    """Return the Service that is created for a JobSet."""
    (action,) = [action for action in PlannerWorld(manifest).plan().actions if isinstance(action, CreateService)]
    return action.manifest


def ports_of(manifest: KubeObject) -> list[KubeObject] | None:
    """Return the ports of that Service; None for none."""
    found: list[KubeObject] | None = service_of(manifest)["spec"].get("ports")
    return found


def test_the_service_is_headless() -> None:
    """The Service has the subdomain's name and selects the JobSet's Pods, ready or not."""
    service = service_of(jobset(network={"subdomain": "net", "publishNotReadyAddresses": False}))
    assert service["metadata"]["name"] == "net"
    assert service["spec"] == {
        "clusterIP": "None",
        "selector": {wire.JOBSET_NAME: "train"},
        "publishNotReadyAddresses": False,
    }
    assert service_of(jobset())["spec"]["publishNotReadyAddresses"] is True


FOREIGN = {"clusterIP": "None", "selector": {wire.JOBSET_NAME: "train"}}


@pytest.mark.parametrize(
    ("spec", "labels", "is_told"),
    [
        ({"clusterIP": "10.0.0.7", "selector": {"app": "other"}}, {}, True),
        ({"clusterIP": "None", "selector": {"app": "other"}}, {}, True),
        ({"clusterIP": "None", "selector": {wire.JOBSET_NAME: "first"}}, {}, True),
        ({"clusterIP": "None"}, {}, True),
        ({"clusterIP": "10.0.0.7", "selector": {wire.JOBSET_NAME: "train"}}, {}, True),
        (FOREIGN, {}, False),
        ({"clusterIP": "None", "selector": {"app": "mine"}}, {"app": "mine"}, False),
    ],
    ids=["another program's", "headless", "another JobSet's", "no selector", "not headless", "by hand", "by labels"],
)
async def test_a_service_of_another_owner_is_told(
    rig: Rig, spec: KubeObject, labels: dict[str, str], is_told: bool
) -> None:
    """SpecProblem names a Service of the JobSet's name that gives its Pods no names, until that Service is gone."""
    service = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "train"},
        "spec": spec | {"ports": [port(80)]},
    }
    await rig.admin.create(SERVICES, "default", service)
    template = POD_SPEC.removesuffix(".spec")
    crew = await rig.submit(changed(jobset(), f"{template}.metadata", {"labels": labels}))
    await rig.settle(2.0)
    found = await crew.find_condition("SpecProblem")
    assert (found is not None) is is_told
    if found is not None:
        assert "saw Service train of another owner" in found["message"]
        assert "kubectl delete service train -n default" in found["message"]
        await rig.admin.delete(SERVICES, "default", "train")
        await rig.settle(2.0)
        assert (await crew.condition("SpecProblem"))["status"] == "False"
        assert (await rig.admin.get(SERVICES, "default", "train"))["metadata"]["ownerReferences"]


def test_ports_of_containers() -> None:
    """Every number and protocol once, whatever their names; TCP where there is none; 0 and null are none."""
    given = [{"containerPort": 1, "name": "a"}, {"containerPort": 1, "name": "b", "protocol": "TCP"}]
    more = [{"containerPort": 1, "protocol": "UDP"}, {"containerPort": 0}, {"protocol": "TCP"}]
    assert ports_of(with_ports(*given, *more)) == [port(1), port(1, "UDP")]
    assert ports_of(with_ports()) is None
    assert ports_of(changed(jobset(), f"{POD_SPEC}.containers.0.ports", None)) is None


def test_ports_of_all_containers_and_of_no_init_container() -> None:
    """All replicatedJobs and all containers count, in their order; an agent beside the worker is an init container."""
    first, second = replicated_job("a"), replicated_job("b")
    containers = [{"name": "x", "ports": [{"containerPort": 2}]}, {"name": "y", "ports": [{"containerPort": 1}]}]
    first["template"]["spec"]["template"]["spec"] |= {"containers": containers, "initContainers": [containers[0]]}
    second["template"]["spec"]["template"]["spec"] |= {
        "containers": [{"name": "x", "ports": [{"containerPort": 3, "protocol": "SCTP"}, {"containerPort": 1}]}],
        "initContainers": [{"name": "agent", "ports": [{"containerPort": 8081}]}],
    }
    assert ports_of(jobset(jobs=[first, second])) == [port(2), port(1), port(3, "SCTP")]


@pytest.mark.parametrize("ports", [None, [], [port(2)], [port(1) | {"targetPort": "http"}], [port(1), port(2)]])
def test_our_service_gets_its_ports(ports: list[KubeObject] | None) -> None:
    """A Service of ours with other ports, or from a controller that gave it none, is changed once."""
    world = settled(with_ports({"containerPort": 1}))
    assert world.service is not None
    world.service["spec"]["ports"] = ports
    (action,) = world.plan().actions
    assert isinstance(action, UpdateService)
    assert list(action.ports) == [port(1)]
    world.settle()
    assert world.service["spec"]["ports"] == [port(1)]


def test_the_order_of_ports_is_nobodys_business() -> None:
    """The same ports in another order, and without the protocol that is the default, are no change."""
    world = settled(with_ports({"containerPort": 1}, {"containerPort": 2}))
    assert world.service is not None
    bare = {name: value for name, value in port(1).items() if name != "protocol"}
    world.service["spec"]["ports"] = [port(2), bare]
    assert world.plan().actions == ()


@pytest.mark.parametrize("how", ["another's", "nobody's", "leaving"])
def test_a_service_that_is_not_ours_keeps_its_ports(how: str) -> None:
    """Only a Service that this JobSet owns is changed, and not while it is being deleted."""
    world = PlannerWorld(with_ports({"containerPort": 1}))
    service = with_identity(service_of(world.manifest))
    del service["spec"]["ports"]
    if how == "leaving":
        service["metadata"]["deletionTimestamp"] = world.now
    else:
        owners = service["metadata"].pop("ownerReferences")
        service["metadata"]["ownerReferences"] = [owners[0] | {"uid": "other"}] if how == "another's" else []
    world.service = service
    world.settle()
    assert "ports" not in service["spec"]


def test_more_ports_than_a_service_gets() -> None:
    """The Service has the first of them, and SpecProblem says so; the others' names resolve all the same."""
    most = with_ports(*({"containerPort": number} for number in range(1, PORTS_MAX + 1)))
    assert len(ports_of(most) or ()) == PORTS_MAX
    assert list(known_problems(PlannerWorld(most).jobset)) == []
    more = with_ports(*({"containerPort": number} for number in range(1, 2 * PORTS_MAX)))
    assert len(ports_of(more) or ()) == PORTS_MAX
    (problem,) = known_problems(PlannerWorld(more).jobset)
    assert f"expected at most {PORTS_MAX} container ports" in problem


def test_other_peoples_services_are_kept_without_ports() -> None:
    """Every Service of the cluster is in the cache: only those of JobSets keep their ports."""
    service = with_identity(service_of(with_ports({"containerPort": 1})))
    kept = SERVICE_CODEC.convert(service)
    assert kept.spec.ports is not None
    service["metadata"]["ownerReferences"] = []
    assert SERVICE_CODEC.convert(service).spec.ports is None


async def test_the_service_in_the_cluster(rig: Rig) -> None:
    """Ports that somebody changed come back, in one write; without ports there is no write."""
    await rig.submit(with_ports({"containerPort": 29500}))
    stored = await rig.admin.get(SERVICES, "default", "train")
    assert stored["spec"]["ports"] == [port(29500)]
    await rig.admin.patch(SERVICES, "default", "train", {"spec": {"ports": None}})
    await rig.settle()
    assert (await rig.admin.get(SERVICES, "default", "train"))["spec"]["ports"] == [port(29500)]
    assert rig.writes("services/train") == 1
    await rig.admin.delete(JOBSETS, "default", "train")
    await rig.submit(jobset("plain"))
    assert rig.writes("services/plain") == 0
