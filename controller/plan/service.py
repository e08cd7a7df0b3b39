"""Create the headless Service that gives Pods their DNS names, and keep its ports as the containers have them."""

from __future__ import annotations

from inplace.common.jobset.jobset import JobSet
from inplace.common.jobset.service import service_ports
from inplace.common.kube.resources import SERVICES, KubeObject
from inplace.common.wire import names as wire
from inplace.controller.plan.actions import CreateService, UpdateService
from inplace.controller.plan.draft import Draft
from inplace.controller.plan.jobs import owner_reference


def ensure_service(draft: Draft) -> bool:
    """Create the Service, or give ours the ports that it lacks; another owner's is left alone."""
    jobset, present = draft.jobset, draft.observed.service
    if not jobset.network.dns_hostnames:
        return False
    if present is None:
        draft.add(CreateService(build_service(jobset)))
    elif present.owner_uid == jobset.uid and present.metadata.deletion_timestamp is None:
        ports = service_ports(jobset)
        if not present.has_ports(ports):
            draft.add(UpdateService(present, tuple(ports)))
    return False


def build_service(jobset: JobSet) -> KubeObject:
    """Return the headless Service."""
    ports = service_ports(jobset)
    return {
        "apiVersion": SERVICES.api_version,
        "kind": SERVICES.kind,
        "metadata": {
            "name": jobset.subdomain,
            "namespace": jobset.namespace,
            "ownerReferences": [owner_reference(jobset)],
        },
        "spec": {
            "clusterIP": "None",
            "selector": {wire.JOBSET_NAME: jobset.name},
            "publishNotReadyAddresses": jobset.network.publish_not_ready,
        }
        | ({"ports": ports} if ports else {}),
    }
