"""Change a worker's container for the agent: its restart rules, its command line, its variables."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

from inplace.common.agent_command import ENTRYPOINT_GUARD
from inplace.common.injection import agent_pieces
from inplace.common.injection.finding import Finding, refusal, shown
from inplace.common.injection.pod_failure_policy import FAILURES
from inplace.common.injection.pod_roles import Container
from inplace.common.injection.restart_rules import Ending, codes_that, ending, spell
from inplace.common.kube.resources import KubeObject
from inplace.common.wire import names as wire
from inplace.common.wire.exit_words import RESTART_CODE
from inplace.common.wire.stop_signal import signal_number
from inplace.common.wire.unfit import CHECK_FAILED_EXIT_CODE as CHECK_FAILED


def add_restart_rules(worker: Container, final: Sequence[int], *, has_check: bool) -> Iterator[Finding]:
    """Let a worker that fails restart its Pod; one that succeeds, or gives a final code, ends it."""
    raw = worker.raw
    if not raw.get("restartPolicyRules"):
        if raw.get("restartPolicy", "Never") != "Never":
            fix = "a worker that starts again alone runs twice in one epoch; remove the field"
            yield refusal(f"{worker.path}.restartPolicy", shown(raw["restartPolicy"]), "Never", fix)
            return
        raw["restartPolicy"] = "Never"
        raw["restartPolicyRules"] = _restart_rules(final, has_check=has_check)
        return
    alone = codes_that(raw, Ending.ALONE_RESTARTS)
    if alone:
        fix = "a worker that starts again alone runs twice in one epoch; use RestartAllContainers, or no rule"
        found = f"exit codes {spell(alone)} that restart it alone"
        yield refusal(f"{worker.path}.restartPolicyRules", found, "none", fix)


def _restart_rules(final: Sequence[int], *, has_check: bool) -> list[KubeObject]:
    """Return the shorter way to say that all other failures restart the Pod; none where no failure is left.

    A check before joining ends the Pod with a code of its own, which is then no reason to restart either.
    """
    others = [code for code in FAILURES if code not in final]
    if len(final) <= len(others):
        return [agent_pieces.restarts_all("NotIn", 0, *final)]
    in_place = [code for code in others if code != CHECK_FAILED or not has_check]
    return [agent_pieces.restarts_all("In", *in_place)] if in_place else []


def let_restart(worker: Container, final: Sequence[int], pod_policy: str) -> Iterator[Finding]:
    """Let kubelet start a supervisor's container anew after one exit code, and let the supervisor know that code.

    Where the Pod ends at this code for a podFailurePolicy, it would end at every other failure as well, or nearly so.
    """
    known = worker.env.get(agent_pieces.CONTAINER_RESTART, {}).get("value")
    code = int(known) if isinstance(known, str) and known.isdecimal() else RESTART_CODE
    if code in final:
        return
    if ending(worker.raw, code, pod_policy) is Ending.STAYS:
        worker.raw.setdefault("restartPolicy", "Never")
        fill(worker.raw, "restartPolicyRules", []).append(agent_pieces.restarts_alone(code))
    yield from add_variables(worker, [{"name": agent_pieces.CONTAINER_RESTART, "value": str(code)}])


def wrap(worker: Container, program: Sequence[str], final: Sequence[int]) -> Iterator[Finding]:
    """Put a program of the agent's image in front of the worker's command."""
    command = worker.raw.get("command")
    if not command:
        fix = "write the image's ENTRYPOINT as the command (`docker inspect` shows it)"
        yield refusal(f"{worker.path}.command", None, "the worker's command", fix)
        return
    worker.raw["command"] = [*program, *_flags(worker, final), "--", *command]


def wrap_entrypoint(worker: Container, program: Sequence[str], final: Sequence[int]) -> Iterator[Finding]:
    """Let the loader of a worker without a command put a program of the agent's image in front of it, if it can."""
    words = {"name": ENTRYPOINT_GUARD, "value": " ".join((*program, *_flags(worker, final)))}
    yield from add_variables(worker, [dict(agent_pieces.LOADER), words])


def _flags(worker: Container, final: Sequence[int]) -> list[str]:
    """Return what a worker's parent is told: codes with which it leaves, and the signal that ends the Pod."""
    flags = ["--fail-on", spell(final, separator=",")] if final else []
    stop = (worker.raw.get("lifecycle") or {}).get("stopSignal")
    if isinstance(stop, str) and stop != "SIGTERM" and signal_number(stop):
        flags += ["--stop-signal", stop]
    return flags


def add_variables(container: Container, entries: Sequence[KubeObject]) -> Iterator[Finding]:
    """Add variables that are not there; one of the same name must not mean something else to the worker."""
    for entry in entries:
        present = next((one for one in container.raw.get("env") or () if one.get("name") == entry["name"]), None)
        if present is None:
            fill(container.raw, "env", []).append(entry)
        elif "valueFrom" in entry and "valueFrom" not in present and entry["name"] not in _LITERALS:
            needed = f"the agent's {entry['valueFrom']['fieldRef']['fieldPath']}"
            fix = "rename the worker's own variable"
            yield refusal(container.path_of(entry["name"]), shown(present.get("value")), needed, fix)


# They may be fixed values.
_LITERALS: Final = ("NAMESPACE", "JOBSET_NAME", "GROUP_SIZE", "GROUP_OFFSET", "BARRIER_ADDRESS", *wire.SETTINGS)


def fill(parent: KubeObject, key: str, empty: Any) -> Any:
    """Return a part of an object, made when it is not there or null."""
    if parent.get(key) is None:
        parent[key] = empty
    return parent[key]
