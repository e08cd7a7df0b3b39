"""Check a guarded worker's container beside its agent. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Any, Final

from inplace.agent.arguments import ArgumentsError, parse
from inplace.agent.link_address import LINK_FILE
from inplace.cli.lint.env import agent_environment
from inplace.cli.manifests.agent_pieces import PROGRAM_FILE
from inplace.cli.manifests.finding import Finding, shown
from inplace.cli.manifests.pod_roles import GUARD, Container, field_path
from inplace.common import wire
from inplace.common.kube.resources import KubeObject

_EPOCHS: Final = {f"metadata.annotations['{key}']" for key in (wire.EPOCH, wire.ATTEMPT)}


def check_guard(worker: Container, agent: Container, jobset_name: str, pod_spec: KubeObject) -> Iterator[Finding]:
    """Yield a worker that no guard holds back, or whose guard does not find the agent."""
    if not worker.calls(GUARD):
        needed, fix = "inplace-agent guard -- COMMAND", "add it, or hold all workers back by a startup probe"
        yield Finding("guard-missing", f"{worker.path}.command", "no guard", needed, fix)
        return
    env = agent_environment(worker, jobset_name)
    place = next((place for place, (_, word) in enumerate(pairwise(worker.words), 1) if word == GUARD), None)
    if place is not None:  # else it stands inside a shell's text
        try:
            parse(worker.words[place:], env)
        except ArgumentsError as error:
            needed, fix = "a command line that the guard accepts", "see inplace-agent --help"
            yield Finding("guard-command", f"{worker.path}.command", str(error), needed, fix)
    left = agent.env.get("AGENT_FILE", {}).get("value")
    if PROGRAM_FILE in worker.words and left != PROGRAM_FILE:
        where, fix = f'{agent.path}.env[name="AGENT_FILE"]', "`inplace inject` adds it"
        yield Finding("worker-file", where, shown(left), PROGRAM_FILE, fix)
    yield from _link(worker, agent, env.get("LINK_FILE") or LINK_FILE, pod_spec)
    for name, entry in worker.env.items():
        if field_path(entry) in _EPOCHS:
            path, found = f'{worker.path}.env[name="{name}"]', f"fieldRef {field_path(entry)}"
            yield Finding("guard-epoch", path, found, "INPLACE_EPOCH", "read INPLACE_EPOCH instead, and remove it")


def _link(worker: Container, agent: Container, guards: str, pod_spec: KubeObject) -> Iterator[Finding]:
    """Yield reasons why guard and agent do not meet."""
    where, fix = f'{agent.path}.env[name="LINK_FILE"]', "`inplace inject` adds it"
    agents = agent.env.get("LINK_FILE", {}).get("value")
    if not agents:
        yield Finding("guard-link", where, "nothing", f"the guard's {guards}", fix)
        return
    if agents != guards:
        fix = "give both containers the same LINK_FILE, on the same volume"
        yield Finding("guard-link", f'{worker.path}.env[name="LINK_FILE"]', guards, f"the agent's {agents}", fix)
        return
    volumes = {name: _volume_of(container, guards) for name, container in (("worker", worker), ("agent", agent))}
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


def _volume_of(container: Container, file: str) -> str | None:
    """Return the volume that holds a file in a container."""
    mounts: list[Mapping[str, Any]] = [
        mount
        for mount in container.raw.get("volumeMounts") or ()
        if file.startswith(str(mount.get("mountPath", "")).rstrip("/") + "/")
    ]
    deepest = max(mounts, key=lambda mount: len(str(mount.get("mountPath"))), default=None)
    return None if deepest is None else str(deepest.get("name"))
