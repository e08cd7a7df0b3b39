"""
Choose how deep a restart in place goes where a JobSet does not say it. Pure.

Kubernetes runs the init containers of a Pod before each try. It runs the postStart hook and the startup probe of a
container once for each start of that container, and the liveness probe only after the startup probe. A guard that
starts its worker's process again repeats none of these, so a Pod that has one of them gets new containers at each
restart. A container with such a probe or hook also starts only when the barrier has lifted: the agent's startup probe
holds it back. docs/modes.md has the table.

Source: k8s.io/kubernetes pkg/kubelet/prober/worker.go and pkg/kubelet/kuberuntime/kuberuntime_manager.go; KEP-5532.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from inplace.common.injection.container_resources import agents_own
from inplace.common.injection.pod_roles import Container, Member
from inplace.common.injection.worker import fill
from inplace.common.wire import names as wire

GCSFUSE: Final = "gke-gcsfuse/volumes"  # GKE's webhook adds the sidecar to Pods with this annotation
GCSFUSE_DRIVER: Final = "gcsfuse.csi.storage.gke.io"
_PROBES: Final = ("startupProbe", "livenessProbe")  # those that kill; readiness kills nobody
_HOOK: Final = "postStart"


def choose_depth(member: Member, workers: Sequence[Container]) -> None:
    """Write the depth `containers` on the Pod template, where the Pod needs it and nobody said a depth."""
    is_open = wire.RESTART_DEPTH not in member.settings and not _needs_process(member)
    if is_open and (run_before_each_try(member) or any(map(kubelets_own, workers))):
        metadata = fill(member.job_spec["template"], "metadata", {})
        fill(metadata, "annotations", {})[wire.RESTART_DEPTH] = wire.DEPTH_CONTAINERS


def run_before_each_try(member: Member) -> list[Container]:
    """Return the user's init containers that run to their end."""
    ours = agents_own(member)
    return [one for one in member.inits if not one.is_sidecar and one not in ours]


def kubelets_own(worker: Container) -> list[str]:
    """Return what kubelet does to a worker's container by the container's own start: probes that kill, and a hook."""
    hooks = [_HOOK] if (worker.raw.get("lifecycle") or {}).get(_HOOK) else []
    return [*(probe for probe in _PROBES if worker.raw.get(probe)), *hooks]


def is_held_back(workers: Sequence[Container], depth: str, *, has_check: bool) -> bool:
    """Say whether these workers' containers start only when the barrier has lifted.

    A check before joining runs in the worker's container BEFORE the barrier lifts.
    """
    return depth == wire.DEPTH_CONTAINERS and not has_check and any(map(kubelets_own, workers))


def holds_back(member: Member) -> bool:
    """Say whether the agent's startup probe holds workers back that kubelet probes, at each restart anew."""
    agent = member.sidecar_agent
    is_held = agent is not None and bool(agent.raw.get("startupProbe")) and any(map(kubelets_own, member.workers))
    return is_held and agent is not None and agent.restart_depth == wire.DEPTH_CONTAINERS


def probed_too_early(member: Member) -> list[Container]:
    """Return the workers of a Pod with an agent whose containers run, and are probed, while no worker does."""
    if member.agent is None or holds_back(member):
        return []
    workers = (member.agent,) if member.place == "supervisor" else member.workers
    return [worker for worker in workers if worker not in member.helpers and kubelets_own(worker)]


def chosen_words(member: Member) -> str:
    """Say why a restart starts all containers of this Pod again; "" where it does not, or nothing in it asks for that.

    Args:
        member: with its agent.
    """
    reasons = [f"init container {one.name} runs before each try" for one in run_before_each_try(member)]
    reasons += [
        f"the {' and the '.join(found)} of container {worker.name} begin at its start"
        for worker in member.workers
        if worker not in member.helpers and (found := kubelets_own(worker))
    ]
    is_deep = member.settings.get(wire.RESTART_DEPTH) == wire.DEPTH_CONTAINERS and member.place == "sidecar"
    if not reasons or not is_deep:
        return ""
    return (
        f"{member.name}: a restart in place starts all containers again, because {'; '.join(reasons)}; "
        f"the annotation {wire.RESTART}: process on the JobSet restarts only the worker's process"
    )


def probed_words(member: Member) -> str:
    """Say what becomes of workers whose containers kubelet probes while no worker runs there; "" for none."""
    found = [f"{' and '.join(kubelets_own(one))} of container {one.name}" for one in probed_too_early(member)]
    if not found:
        return ""
    return (
        f"{member.name}: kubelet kills a worker that does not answer while it waits at the barrier or loads again: "
        f"{'; '.join(found)}; remove what keeps its container running ({wire.RESTART}: process, a lease, a check "
        "before joining, a supervisor), or let the probes wait longer"
    )


def gcsfuse_volumes(member: Member) -> list[str]:
    """Return the mounts of buckets: their sidecar gets its file descriptor once, when the Pod starts."""
    template: Mapping[str, Any] = member.job_spec.get("template") or {}
    annotations = (template.get("metadata") or {}).get("annotations") or {}
    volumes = [
        str(volume.get("name"))
        for volume in member.pod_spec.get("volumes") or ()
        if isinstance(csi := volume.get("csi"), dict) and csi.get("driver") == GCSFUSE_DRIVER
    ]
    is_annotated = str(annotations.get(GCSFUSE)).lower() == "true"
    return volumes or ([GCSFUSE] if is_annotated else [])


def _needs_process(member: Member) -> bool:
    """Say whether new containers would break the Pod: a lease needs an agent that stays, a bucket its first sidecar."""
    return wire.FENCE_AFTER in member.settings or bool(gcsfuse_volumes(member))
