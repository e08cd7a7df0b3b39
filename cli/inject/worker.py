"""Change a worker's container for the agent: its restart rules, its command line, its variables."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

from inplace.cli.manifests import agent_pieces
from inplace.cli.manifests.finding import REFUSED, Finding, shown
from inplace.cli.manifests.pod_roles import PROGRAM, Container, Member
from inplace.cli.manifests.restart_rules import Ending, codes_that, spell
from inplace.common.kube.resources import KubeObject


def final_codes(member: Member, worker: Container) -> list[int]:
    """Return the exit codes that the Job's podFailurePolicy decides on: they have to fail the Pod to get there."""
    codes: set[int] = set()
    for rule in (member.job_spec.get("podFailurePolicy") or {}).get("rules") or ():
        on = rule.get("onExitCodes") if isinstance(rule, dict) else None
        if isinstance(on, dict) and on.get("operator") == "In" and on.get("containerName") in (None, worker.name):
            codes |= {code for code in on.get("values") or () if isinstance(code, int) and 0 < code < 256}
    return sorted(codes)


def add_restart_rules(worker: Container, final: Sequence[int]) -> Iterator[Finding]:
    """Let a worker that fails restart its Pod; one that succeeds completes it."""
    raw = worker.raw
    if not raw.get("restartPolicyRules"):
        if raw.get("restartPolicy", "Never") != "Never":
            fix = "a worker that starts again alone runs twice in one epoch; remove the field"
            yield Finding(REFUSED, f"{worker.path}.restartPolicy", shown(raw["restartPolicy"]), "Never", fix)
            return
        raw["restartPolicy"] = "Never"
        raw["restartPolicyRules"] = [agent_pieces.restarts_all("NotIn", 0, *final)]
        return
    alone = codes_that(raw, "Never", Ending.ALONE_RESTARTS)
    if alone:
        fix = "a worker that starts again alone runs twice in one epoch; use RestartAllContainers, or no rule"
        path, found = f"{worker.path}.restartPolicyRules", f"exit codes {spell(alone)} that restart it alone"
        yield Finding(REFUSED, path, found, "none", fix)


def wrap(worker: Container, subcommand: str, flags: Sequence[str], *, agent_in_image: bool) -> Iterator[Finding]:
    """Put the agent in front of the worker's command."""
    command = worker.raw.get("command")
    if not command:
        fix = "write the image's ENTRYPOINT as the command: inject can only wrap a command that the manifest shows"
        fix += "; or --barrier probe" if subcommand in ("guard", "wait") else ""
        yield Finding(REFUSED, f"{worker.path}.command", "nothing", "the worker's command", fix)
        return
    file = agent_pieces.GUARD_COMMAND if subcommand == "guard" else agent_pieces.PROGRAM_COMMAND
    program = (PROGRAM,) if agent_in_image else file
    worker.raw["command"] = [*program, subcommand, *flags, "--", *command]


def add_variables(container: Container, entries: Sequence[KubeObject]) -> Iterator[Finding]:
    """Add variables that are not there; one of the same name must not mean something else to the worker."""
    for entry in entries:
        present = next((one for one in container.raw.get("env") or () if one.get("name") == entry["name"]), None)
        if present is None:
            if container.raw.get("env") is None:
                container.raw["env"] = []
            container.raw["env"].append(entry)
        elif "valueFrom" in entry and "valueFrom" not in present and entry["name"] not in _LITERALS:
            path, fix = f'{container.path}.env[name="{entry["name"]}"]', "rename the worker's own variable"
            needed = f"the agent's {entry['valueFrom']['fieldRef']['fieldPath']}"
            yield Finding(REFUSED, path, shown(present.get("value")), needed, fix)


_LITERALS: Final = ("NAMESPACE", "JOBSET_NAME", "GROUP_SIZE", "GROUP_OFFSET", "BARRIER_ADDRESS")  # may be fixed values


def fill(parent: KubeObject, key: str, empty: Any) -> Any:
    """Return a part of an object, made when it is not there or null."""
    if parent.get(key) is None:
        parent[key] = empty
    return parent[key]
