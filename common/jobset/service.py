"""
The headless Service of a JobSet, and the ports that it names.

A Pod is found by its name without any port. Ports are for what looks them up: SRV records, and meshes and policies that
read a Service. Source: jobset pkg/controllers/jobset_controller.go, constructHeadlessSvc.
"""

from __future__ import annotations

from itertools import islice
from typing import Final

import msgspec

from inplace.common.jobset.fields import ReplicatedJob
from inplace.common.jobset.form import PORTS_MAX, Port
from inplace.common.jobset.jobset import JobSet
from inplace.common.jobset.kinds import OwnedMeta, controller_uid
from inplace.common.kube.codec import slim
from inplace.common.kube.resources import KubeObject
from inplace.common.wire import names as wire

HEADLESS: Final = "None"  # clusterIP


class ServicePort(msgspec.Struct, rename="camel", frozen=True, gc=False):
    """One port of a Service."""

    port: int
    name: str | None = None
    protocol: str | None = None
    target_port: int | str | None = None


class ServiceSpec(msgspec.Struct, frozen=True, gc=False, rename={"cluster_ip": "clusterIP"}):
    """Spec of a Service."""

    ports: tuple[ServicePort, ...] | None = None
    cluster_ip: str | None = None
    selector: dict[str, str] | None = None


class Service(msgspec.Struct, frozen=True, gc=False):
    """A Service, slim: that it exists, whose it is, whose names it gives, and the ports of one that a JobSet owns."""

    metadata: OwnedMeta
    spec: ServiceSpec = ServiceSpec()

    def __post_init__(self) -> None:
        """Drop what nothing compares: the ports of others, and the selector of a Service that gives no names."""
        selector = self.spec.selector if self.spec.cluster_ip == HEADLESS else None
        ports = self.spec.ports if self.owner_uid is not None else None
        msgspec.structs.force_setattr(self, "spec", ServiceSpec(ports, selector=selector))

    def names_pods_of(self, jobset: JobSet) -> bool:
        """Say whether it gives each Pod of a JobSet its DNS name: it is headless, and selects them."""
        if not (selector := self.spec.selector):
            return False
        ours = {wire.JOBSET_NAME: jobset.name}
        return all(selector.items() <= (_labels_of(job) | ours).items() for job in jobset.replicated_jobs)

    @property
    def owner_uid(self) -> str | None:
        """Return the UID of the JobSet that controls this Service."""
        return controller_uid(self.metadata.owner_references, wire.KIND)

    def has_ports(self, wanted: list[KubeObject]) -> bool:
        """Say whether the ports are these, in any order."""
        seen = {(one.name, one.protocol or "TCP", one.port, one.target_port) for one in self.spec.ports or ()}
        return seen == {(one["name"], one["protocol"], one["port"], one["targetPort"]) for one in wanted}


def _labels_of(job: ReplicatedJob) -> dict[str, str]:
    metadata = ((job.template().get("spec") or {}).get("template") or {}).get("metadata") or {}
    return dict(metadata.get("labels") or {})


def container_ports(jobset: JobSet) -> list[Port]:
    """Return the ports of all containers, each number and protocol once; of too many one more than there may be."""
    found = dict.fromkeys(port for job in jobset.replicated_jobs for port in job.form.ports)
    return list(islice(found, PORTS_MAX + 1))


def service_ports(jobset: JobSet) -> list[KubeObject]:
    """Return the ports of the Service."""
    return [
        {"name": f"{protocol.lower()}-{number}", "protocol": protocol, "port": number, "targetPort": number}
        for number, protocol in container_ports(jobset)[:PORTS_MAX]
    ]


SERVICE_CODEC: Final = slim(Service)
