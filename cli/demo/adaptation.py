"""
Change a JobSet so that the demo's cluster can show it, and say what was changed.

Whatever else a cluster has (queues, other controllers, Secrets) is not there; what waits for it would wait for ever.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from copy import deepcopy
from typing import Final

from inplace.cli.inject.inject import Refusal, inject
from inplace.common.agent_command import AGENT_COMMAND, agent_arguments, is_guarded
from inplace.common.injection import agent_pieces
from inplace.common.injection.job import named_workers
from inplace.common.injection.pod import InjectOptions
from inplace.common.injection.pod_roles import RUN, Container, Member, is_in_place, members
from inplace.common.jobset.settings import AGENT, WORKERS
from inplace.common.kube.resources import KubeObject
from inplace.common.wire import names as wire
from inplace.common.wire.barrier import UPSTREAM_PATH, UPSTREAM_PORT
from inplace.common.wire.in_place import failure_policy_of

INITIALIZER_S: Final = "1"  # how long a modelled initializer works
_ENTRYPOINT: Final = "/entrypoint"
_WORKER: Final = "WORKER_COMMAND"  # of upstream's agent, where it is the worker's parent
# What upstream's agent takes where these are not set, under our names and under its own.
_DEFAULTS: Final = (
    ("BARRIER_PATH", "STARTUP_PROBE_PATH", UPSTREAM_PATH),
    ("BARRIER_PORT", "STARTUP_PROBE_PORT", str(UPSTREAM_PORT)),
    ("RESTART_POD_IN_PLACE_EXIT_CODE", "IN_PLACE_RESTART_EXIT_CODE", "1"),
)
_IN_PLACE: Final = {"restartStrategy": wire.IN_PLACE_RESTART}
_NAME: Final = "demo"  # what the API server would add to generateName at random


class DemoError(Exception):
    """The demo cannot begin, or did not show what it should; the message says what was expected and what was seen."""


def adapted(jobset: KubeObject, *, models: bool, failures: int) -> tuple[KubeObject, list[str]]:
    """Return a copy that the demo's cluster can run, and one sentence for each change.

    Args:
        jobset: with replicas and parallelism in each replicatedJob.
        models: its containers are timed models.
        failures: so many restarts are to come.

    Raises:
        DemoError: it cannot run it.
    """
    jobset = deepcopy(jobset)
    notes = [*_named(jobset), *_started(jobset), *_with_our_agent(jobset)]
    notes += _commanded(jobset, models=models)
    if not is_in_place(jobset):
        policy = jobset["spec"].get("failurePolicy") or {}
        jobset["spec"]["failurePolicy"] = dict(agent_pieces.DEFAULT_POLICY) | policy | _IN_PLACE
        notes.append(f"it does not restart in place; the demo sets restartStrategy: {wire.IN_PLACE_RESTART}")
        notes += _unlimited(jobset)
    notes += _allowed(jobset, failures)
    for member in members(jobset):
        notes += _placed(member)
    if models:
        notes += _ended(jobset)
    return jobset, notes


def with_agent(jobset: KubeObject) -> tuple[KubeObject, list[str]]:
    """Return the JobSet with the agent that the demo's controller adds to its Jobs; one that has an agent as it is.

    If no sign says which containers train, the JobSet gets the annotation that names them, and a note says so.

    Raises:
        DemoError: something keeps the agent out.
    """
    if any(member.agent for member in members(jobset)):
        return jobset, []
    try:
        return _injected(jobset), []
    except Refusal as refusal:
        workers = _likely_workers(jobset)
        annotations = jobset["metadata"].get("annotations") or {}
        if not named_workers(annotations) and workers:
            jobset["metadata"]["annotations"] = annotations | AGENT.with_part(annotations, WORKERS, "+".join(workers))
            with suppress(Refusal):
                return _injected(jobset), [f"{wire.AGENT}: the demo takes {', '.join(workers)} for what trains"]
        problems = "".join(f"\n  {finding}" for finding in refusal.findings)
        raise DemoError(f"expected a JobSet to which the agent can be added, saw:{problems}") from refusal


def with_one_guard(jobset: KubeObject) -> tuple[KubeObject, list[str]]:
    """Return a JobSet without an agent in whose Pods one container trains: a model of a Pod has one guard.

    Returns:
        The JobSet, and a note where the annotation had to say it.

    Raises:
        DemoError: it has guards already, several in a Pod.
    """
    annotations = jobset["metadata"].get("annotations") or {}
    shown, _ = with_agent(deepcopy(jobset))
    several = [names for member in members(shown) if len(names := _guarded(member)) > 1]
    if not several:
        return jobset, []
    if any(member.agent for member in members(jobset)):
        raise DemoError(
            f"expected one container that trains in each Pod, saw {', '.join(several[0])}: a modelled Pod has one "
            "guard; use --runtime process, which runs the commands here"
        )
    first = dict.fromkeys(name for member in members(shown) for name in _guarded(member)[:1])
    jobset["metadata"]["annotations"] = annotations | AGENT.with_part(annotations, WORKERS, "+".join(first))
    others = ", ".join(name for names in several for name in names[1:])
    return jobset, [f"a modelled Pod has one guard: {', '.join(first)} trains, and {others} only runs beside it"]


def _guarded(member: Member) -> list[str]:
    return [worker.name for worker in member.workers if is_guarded(worker.words)]


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


def _allowed(jobset: KubeObject, failures: int) -> Iterator[str]:
    """Allow as many restarts as there are failures to come."""
    allowed = (failure_policy_of(jobset) or {}).get("maxRestarts") or 0
    if allowed >= failures:
        return
    annotations = jobset["metadata"].get("annotations") or {}
    if wire.RESTART_IN_PLACE in annotations:
        annotations[wire.RESTART_IN_PLACE] = str(failures)
    if (policy := jobset["spec"].get("failurePolicy")) is not None:
        policy["maxRestarts"] = failures
    yield f"maxRestarts {allowed}: the demo allows {failures}, as it kills so many workers"


def _unlimited(jobset: KubeObject) -> Iterator[str]:
    """Remove fields of a Job that forbid a restart in place; the controller then sets the right values."""
    for member in members(jobset):
        for field, needed in agent_pieces.JOB_FIELDS.items() if not member.has_opted_out else ():
            if member.job_spec.get(field) not in (None, needed):
                yield f"{member.name}: {field} {member.job_spec.pop(field)}: the demo leaves it out"


def _with_our_agent(jobset: KubeObject) -> Iterator[str]:
    """Run our agent where the agent is its image's program, such as upstream's: both read the same variables."""
    for member in members(jobset):
        for container in member.every_container:
            is_parent = container.is_upstream_supervisor
            if not (is_parent or container.is_agent_alone) or agent_arguments(container.words) is not None:
                continue
            worker = [RUN, "--", "/bin/sh", "-c", container.env[_WORKER].get("value") or ""] if is_parent else []
            env = [entry for entry in container.raw.get("env") or () if entry["name"] != _WORKER]
            if container.has_upstream_names:  # each Pod's agent has an address, and no file of its account
                env += (_field("BARRIER_ADDRESS", "status.podIP"), _field("NAMESPACE", "metadata.namespace"))
                names = container.env.keys()
                env += ({"name": ours, "value": text} for ours, their, text in _DEFAULTS if their not in names)
            container.raw.pop("args", None)
            container.raw.update(command=[AGENT_COMMAND, *worker], env=env)
            yield f"container {container.name} of {member.name} has the agent's image; the demo runs its own agent"


def _field(name: str, path: str) -> KubeObject:
    return {"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}}


def _commanded(jobset: KubeObject, *, models: bool) -> Iterator[str]:
    """Give containers without a command a word in its place: a model runs no program, and an image has none here.

    Raises:
        DemoError: programs have to run.
    """
    for member in members(jobset):
        for container in member.every_container:
            if container.raw.get("command") or container.is_agent_alone:
                continue
            whose = f"container {container.name} of {member.name} has no command"
            if not models:
                raise DemoError(f"{whose}, and its image's program is not here: give it one, or use --runtime model")
            container.raw["command"] = [_ENTRYPOINT]
            yield f"{whose}; its model is its image's program"


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


def _injected(jobset: KubeObject) -> KubeObject:
    (changed,), _ = inject([jobset], InjectOptions())
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
