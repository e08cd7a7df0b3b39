"""Find an agent that takes a Guaranteed Pod its class. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from inplace.cli.manifests.container_resources import agents_own, is_guaranteed, is_pod_guaranteed, users_own
from inplace.cli.manifests.finding import Finding, shown
from inplace.cli.manifests.pod_roles import Member


def check_pod_class(member: Member) -> Iterator[Finding]:
    """Yield the agent's containers without which the Pod would be Guaranteed."""
    if not is_pod_guaranteed(member, users_own(member)):
        return
    for container in agents_own(member):
        if not is_guaranteed(container):
            found = shown(container.raw.get("resources"))
            fix = f"give {container.name} limits for cpu and memory, as `inplace inject` does"
            yield Finding("pod-class", f"{container.path}.resources", found, "limits that equal the requests", fix)
