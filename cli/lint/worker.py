"""Check a worker's container beside an agent, and the guard in it. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from inplace.agent.settings.address import LINK_FILE, progress_dir
from inplace.agent.settings.command import PROGRESS_DIR
from inplace.cli.lint.agent import check_command, options_of
from inplace.common.agent_command import GUARD
from inplace.common.injection.agent_pieces import PREFIX
from inplace.common.injection.finding import Finding
from inplace.common.injection.pod_roles import Container, field_path
from inplace.common.injection.restart_rules import CODES, Ending, codes_that, ending, spell
from inplace.common.kube.resources import KubeObject
from inplace.common.wire import names as wire

_EPOCHS: Final = {f"metadata.annotations['{key}']" for key in (wire.EPOCH, wire.ATTEMPT)}


def check_worker(worker: Container) -> Iterator[Finding]:
    """Yield exit codes after which the worker does something else than restart its Pod, fail it or complete it."""
    path = f"{worker.path}.restartPolicyRules"
    alone = codes_that(worker.raw, Ending.ALONE_RESTARTS)
    if alone:
        fix = "set restartPolicy: Never, and the action of its rules to RestartAllContainers"
        found = f"exit codes {spell(alone)}, after which it alone starts again"
        yield Finding("worker-restarts-alone", path, found, "RestartAllContainers, or no rule", fix)
        return
    if ending(worker.raw, 0, "Never") is Ending.ALL_RESTART:
        fix = "exclude 0: operator NotIn, values [0]"
        yield Finding("worker-success", path, "exit code 0, which restarts the Pod", "a Pod that completes", fix)
    if not codes_that(worker.raw, Ending.ALL_RESTART, CODES[1:]):
        fix = "add action RestartAllContainers for exitCodes NotIn [0], and restartPolicy: Never"
        yield Finding("worker-recreated", path, "no exit code that restarts the Pod", "a rule for failures", fix)


def check_start(worker: Container, agent: Container) -> Iterator[Finding]:
    """Yield a worker that only the agent's startup probe holds back."""
    if not agent.has_upstream_names:  # upstream's agent has no guards
        needed = "inplace-agent guard -- COMMAND"
        found = "the startup probe alone"
        if worker.has_entrypoint_guard:
            found = (
                "nothing: its image's ENTRYPOINT gets a guard if that program uses glibc, else the startup probe alone"
            )
        fix = "write the image's ENTRYPOINT as the command (`docker inspect` shows it)"
        if worker.raw.get("command"):
            fix = "remove the agent's container: `inplace inject` then adds it with a guard"
        yield Finding("worker-start", f"{worker.path}.command", found, needed, fix)


def check_guard(worker: Container, agent: Container, pod_spec: KubeObject) -> Iterator[Finding]:
    """Yield a worker that no guard holds back, or whose guard does not find the agent."""
    if not worker.calls(GUARD):
        needed, fix = "inplace-agent guard -- COMMAND", "add it, or hold all workers back by a startup probe"
        yield Finding("guard-missing", f"{worker.path}.command", "no guard", needed, fix)
        return
    yield from check_command(worker, GUARD)
    yield from _program_volume(worker)
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
    yield from _one_volume(worker, agent, guards, pod_spec)
    progress = progress_dir(worker.values.get(PROGRESS_DIR, ""), guards)
    if (worker.mount_of(guards) or {}).get("readOnly"):
        yield from _one_volume(worker, agent, f"{progress}/rank-0", pod_spec, written=True)


def _one_volume(
    worker: Container, agent: Container, file: str, pod_spec: KubeObject, *, written: bool = False
) -> Iterator[Finding]:
    """Yield why worker and agent do not see the same file; `written`: by both."""
    mounts = {name: one.mount_of(file) or {} for name, one in (("worker", worker), ("agent", agent))}
    folder = file.rpartition("/")[0]
    if written and mounts["worker"].get("readOnly"):
        fix = "`inplace inject` adds it to both containers: ranks write how far they are, and guards notes of theirs"
        yield Finding("guard-link", f"{worker.path}.volumeMounts", "nothing", f"an emptyDir at {folder}", fix)
        return
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
        fix = f"mount one emptyDir at {folder} in both containers"
        yield Finding("guard-link", f"{worker.path}.volumeMounts", found, "one emptyDir in both", fix)


def _program_volume(worker: Container) -> Iterator[Finding]:
    """Yield a worker that starts by a program of the agent's image, which is not mounted."""
    program = next((word for word in worker.words[:1] if word.startswith(f"{PREFIX}/")), None)
    if program is not None and worker.mount_of(program) is None:
        path, needed = f"{worker.path}.volumeMounts", f"the agent's image, or a copy of it, at {PREFIX}"
        yield Finding("worker-file", path, f"nothing that holds {program}", needed, "`inplace inject` adds it")
