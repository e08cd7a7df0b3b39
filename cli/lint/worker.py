"""Check a worker's container beside an agent. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from inplace.controller.injection.agent_pieces import PREFIX
from inplace.controller.injection.finding import Finding
from inplace.controller.injection.pod_roles import REMOVED, REMOVED_FIX, Container, Member
from inplace.controller.injection.restart_rules import CODES, Ending, codes_that, ending, spell


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
    if not agent.has_upstream_names and not worker.calls(REMOVED):  # upstream's agent has no guards
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


def check_removed(member: Member) -> Iterator[Finding]:
    """Yield containers that call a subcommand of an earlier version."""
    for container in member.every_container:
        if container.calls(REMOVED):
            found, needed = f"inplace-agent {REMOVED}", "inplace-agent guard -- COMMAND"
            yield Finding("worker-wait", f"{container.path}.command", found, needed, REMOVED_FIX)


def check_program_volume(worker: Container) -> Iterator[Finding]:
    """Yield a worker that starts by a program of the agent's image, which is not mounted."""
    program = next((word for word in worker.words[:1] if word.startswith(f"{PREFIX}/")), None)
    if program is not None and worker.mount_of(program) is None:
        path, needed = f"{worker.path}.volumeMounts", f"the agent's image, or a copy of it, at {PREFIX}"
        yield Finding("worker-file", path, f"nothing that holds {program}", needed, "`inplace inject` adds it")
