"""Check a guarded worker's container beside its agent. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from inplace.agent.link.address import LINK_FILE
from inplace.cli.lint.agent import check_command
from inplace.cli.lint.options import options_of
from inplace.cli.lint.worker import check_program_volume
from inplace.common.agent_command import GUARD
from inplace.common.kube.resources import KubeObject
from inplace.common.wire import names as wire
from inplace.controller.injection.finding import Finding
from inplace.controller.injection.pod_roles import Container, field_path

_EPOCHS: Final = {f"metadata.annotations['{key}']" for key in (wire.EPOCH, wire.ATTEMPT)}


def check_guard(worker: Container, agent: Container, pod_spec: KubeObject) -> Iterator[Finding]:
    """Yield a worker that no guard holds back, or whose guard does not find the agent."""
    if not worker.calls(GUARD):
        needed, fix = "inplace-agent guard -- COMMAND", "add it, or hold all workers back by a startup probe"
        yield Finding("guard-missing", f"{worker.path}.command", "no guard", needed, fix)
        return
    yield from check_command(worker, GUARD)
    yield from check_program_volume(worker)
    yield from _link(worker, agent, worker.values.get("LINK_FILE") or LINK_FILE, pod_spec)
    yield from _standby(worker, agent)
    for name, entry in worker.env.items():
        if field_path(entry) in _EPOCHS:
            fix = "read INPLACE_EPOCH instead, and remove it"
            yield Finding("guard-epoch", worker.path_of(name), f"fieldRef {field_path(entry)}", "INPLACE_EPOCH", fix)


def _standby(worker: Container, agent: Container) -> Iterator[Finding]:
    """Yield a standby that no restart can use."""
    options = options_of(worker, GUARD)
    if options is not None and options.standby and agent.restart_depth != wire.DEPTH_PROCESS:
        needed = f"{wire.RESTART_DEPTH}: {wire.DEPTH_PROCESS}"
        yield Finding("guard-standby", f"{worker.path}.command", "--standby", needed, "annotate the JobSet")


def _link(worker: Container, agent: Container, guards: str, pod_spec: KubeObject) -> Iterator[Finding]:
    """Yield reasons why guard and agent do not meet."""
    agents = agent.env.get("LINK_FILE", {}).get("value")
    if not agents:
        needed, fix = f"the guard's {guards}", "`inplace inject` adds it"
        yield Finding("guard-link", agent.path_of("LINK_FILE"), "nothing", needed, fix)
        return
    if agents != guards:
        fix = "give both containers the same LINK_FILE, on the same volume"
        yield Finding("guard-link", worker.path_of("LINK_FILE"), guards, f"the agent's {agents}", fix)
        return
    mounts = {name: one.mount_of(guards) or {} for name, one in (("worker", worker), ("agent", agent))}
    volumes = {name: mount.get("name") for name, mount in mounts.items()}
    kinds = {str(volume.get("name")): volume for volume in pod_spec.get("volumes") or ()}
    if (
        None in volumes.values()
        or len(set(volumes.values())) > 1
        or "emptyDir" not in kinds.get(str(volumes["agent"]), {})
    ):
        found = ", ".join(
            f"{volumes[name] or 'no volume'} in {one.name}" for name, one in (("worker", worker), ("agent", agent))
        )
        fix = f"mount one emptyDir at the folder of {guards} in both containers"
        yield Finding("guard-link", f"{worker.path}.volumeMounts", found, "one emptyDir in both", fix)
