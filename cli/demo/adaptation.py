"""
Change a JobSet so that the demo's cluster can show it, and say what was changed.

Whatever else a cluster has (queues, other controllers, Secrets) is not there; what waits for it would wait for ever.
"""

from __future__ import annotations

from collections.abc import Iterator
from copy import deepcopy
from typing import Final

from inplace.agent.barrier.address import OUR_PORT
from inplace.cli.inject.jobset import Refusal, inject
from inplace.cli.inject.pod import InjectOptions
from inplace.cli.manifests.pod_roles import Container, Member, members
from inplace.common.kube.resources import KubeObject
from inplace.common.wire import names as wire

INITIALIZER_S: Final = "1"  # how long a modelled initializer works
_ENTRYPOINT: Final = "/entrypoint"
_OTHER_PORT: Final = 18080  # of the barrier, where the Pod's own programs may have the usual one
_NAME: Final = "demo"  # what the API server would add to generateName at random


class DemoError(Exception):
    """The demo cannot begin, or did not show what it should; the message says what was expected and what was seen."""


def adapted(jobset: KubeObject, *, models: bool) -> tuple[KubeObject, list[str]]:
    """Return a copy that the demo's cluster can run, and one sentence for each change.

    Args:
        jobset: with replicas and parallelism in each replicatedJob.
        models: its containers are timed models.

    Raises:
        DemoError: nothing in it can restart in place.
    """
    jobset = deepcopy(jobset)
    notes = [*_named(jobset), *_started(jobset)]
    if models:
        notes += _commanded(jobset)
    if not _restarts_in_place(jobset):
        jobset, workers = _injected(jobset)
        notes.append(f"it does not restart in place; it is shown as `inplace inject{workers}` changes it")
    for member in members(jobset):
        notes += _placed(member)
    if models:
        notes += _ended(jobset)
    return jobset, notes


def initializers(jobset: KubeObject) -> set[str]:
    """Return the replicatedJobs for whose end another one waits."""
    return {
        str(dependency.get("name"))
        for member in members(jobset)
        for dependency in member.raw.get("dependsOn") or ()
        if dependency.get("status") == "Complete"
    }


def _named(jobset: KubeObject) -> Iterator[str]:
    """Give a JobSet with generateName a name."""
    meta = jobset["metadata"]
    if not meta.get("name") and meta.get("generateName"):
        meta["name"] = f"{meta.pop('generateName')}{_NAME}"
        yield f"metadata.generateName: the demo calls it {meta['name']}"


def _started(jobset: KubeObject) -> Iterator[str]:
    """Take away what keeps our controller from running all of it as one group."""
    spec = jobset["spec"]
    if spec.get("suspend"):
        spec["suspend"] = False
        yield "spec.suspend: the demo resumes it, as a queue would"
    if spec.get("managedBy") not in (None, wire.MANAGED_BY_US, wire.MANAGED_BY_BUILT_IN):
        yield f"spec.managedBy {spec.pop('managedBy')}: the demo has inplace's controller alone"
    annotations = jobset["metadata"].get("annotations") or {}
    if annotations.get(wire.RESTART_SCOPE):
        yield f"{wire.RESTART_SCOPE} {annotations.pop(wire.RESTART_SCOPE)}: the demo restarts all of it together"


def _restarts_in_place(jobset: KubeObject) -> bool:
    strategy = (jobset["spec"].get("failurePolicy") or {}).get("restartStrategy")
    return strategy == wire.IN_PLACE_RESTART and any(member.agent for member in members(jobset))


def _commanded(jobset: KubeObject) -> Iterator[str]:
    """Give containers without a command a word in its place: a model runs no program, and an image has none here."""
    for member in members(jobset):
        for container in member.every_container:
            if not container.words and not container.is_agent_alone:
                container.raw["command"] = [_ENTRYPOINT]
                yield f"container {container.name} of {member.name} has no command; its model is its image's program"


def _likely_workers(jobset: KubeObject) -> tuple[str, ...]:
    """Return the container of each Pod that trains by all signs: the one with devices, else the last with a program."""

    def devices(container: Container) -> bool:
        limits = (container.raw.get("resources") or {}).get("limits") or {}
        return any("/" in name for name in limits)

    found: dict[str, None] = {}
    for member in members(jobset):
        programs = [each for each in member.containers if each.words and each.words != [_ENTRYPOINT]]
        choice = [each for each in programs if devices(each)][:1] or programs[-1:] or member.containers[-1:]
        found |= dict.fromkeys(each.name for each in choice)
    return tuple(found)


def _injected(jobset: KubeObject) -> tuple[KubeObject, str]:
    """Return the JobSet with an agent, and the options that name its workers."""
    workers: tuple[str, ...] = ()
    try:
        changed = _changed(jobset, workers)
    except Refusal as refusal:
        workers = _likely_workers(jobset)
        try:
            changed = _changed(jobset, workers, port=_OTHER_PORT)
        except Refusal:
            problems = "".join(f"\n  {finding}" for finding in refusal.findings)
            raise DemoError(
                f"expected a JobSet that restarts in place, or one that `inplace inject` can change, saw:{problems}"
            ) from refusal
    options = "".join(f" --worker {name}" for name in workers)
    if not _restarts_in_place(changed):
        strategy = (changed["spec"].get("failurePolicy") or {}).get("restartStrategy")
        raise DemoError(
            f"expected a JobSet with {wire.IN_PLACE_RESTART} and an agent in its Pods (the demo shows that), saw "
            f"restartStrategy {strategy}"
        )
    return changed, options


def _changed(jobset: KubeObject, workers: tuple[str, ...], port: int = OUR_PORT) -> KubeObject:
    (changed,), _ = inject([jobset], InjectOptions(unrestricted_account=True, workers=workers, port=port))
    result: KubeObject = changed
    return result


def _placed(member: Member) -> Iterator[str]:
    """Open the Pods' gates: what closes them (a queue, a topology) is not in the demo's cluster."""
    gates = member.pod_spec.pop("schedulingGates", None)
    if gates:
        names = ", ".join(str(gate.get("name")) for gate in gates)
        yield f"schedulingGates of {member.name}: the demo opens {names}, as a queue would"


def _ended(jobset: KubeObject) -> Iterator[str]:
    """Let modelled workers end where a later replicatedJob waits for that."""
    awaited = initializers(jobset)
    for member in members(jobset):
        if member.name not in awaited:
            continue
        for container in member.workers:
            env = [entry for entry in container.raw.get("env") or () if entry.get("name") not in ("STEPS", "STEP_S")]
            container.raw["env"] = [*env, {"name": "STEPS", "value": "1"}, {"name": "STEP_S", "value": INITIALIZER_S}]
        yield f"{member.name}: others wait for its end, so its models end after {INITIALIZER_S} s"
