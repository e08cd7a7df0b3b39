"""
Add what the policies of docs/policies.md need: annotations of the JobSet, and settings of its agents and workers. Pure.

Settings become variables, so that a command which has an agent already stays as it is. One that says otherwise is
refused, as is a policy that the Pod's kind of agent cannot carry out.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from math import ceil
from typing import Final, Literal

from inplace.common.agent_command import GUARD
from inplace.common.bare.record import record
from inplace.common.wire import names as wire
from inplace.common.wire.unfit import CHECK_FAILED_EXIT_CODE
from inplace.controller.injection import agent_pieces
from inplace.controller.injection.finding import Finding, refusal
from inplace.controller.injection.pod_failure_policy import final_codes_by_rule
from inplace.controller.injection.pod_roles import RUN, Container, Member
from inplace.controller.injection.restart_rules import Ending, ending
from inplace.controller.injection.worker import fill

AFTER_SAVING_S: Final = 30  # for the worker's end, as Kubernetes gives a Pod that has nothing to save
_CHECK: Final = "BEFORE_ANNOUNCE"
_ESCAPED: Final = re.compile(r"\$(?=[$(])")  # kubelet replaces $(NAME) in values, and $$ by $


@record
class PolicyOptions:
    """What the user asks for; each is off by default.

    Args:
        check: a shell's command that says before each announcement whether the Pod may join.
        check_timeout_s: how long it may take; None for the agent's default.
        unanswered: what the Pod does if it hangs or cannot be run; None for the agent's default.
        save_within_s: how long workers may take to save before a planned stop; 0: they are not asked.
        fence_after_s: the length of the workers' leases, as the annotation has it.
        bad_nodes: when a node is bad, as the annotation has it.
        clean: what is removed after each run: paths, `ipc`, `off`.
        spares: how many placeholder Pods hold room, as the annotation has it.
    """

    check: str = ""
    check_timeout_s: float | None = None
    unanswered: Literal["join", "leave"] | None = None
    save_within_s: int = 0
    fence_after_s: str | None = None
    bad_nodes: str | None = None
    clean: tuple[str, ...] = ()
    spares: str | None = None


NO_POLICIES: Final = PolicyOptions()


def add_policies(member: Member, policies: PolicyOptions) -> Iterator[Finding]:
    """Set what a Pod, which has its agent by now, needs for what the options or its annotations ask for."""
    member = replace(member)  # as it stands now
    agent, save_s, leased = member.agent, _save_s(member), wire.FENCE_AFTER in member.annotations
    has_check = bool(policies.check) or any(map(checks, member.workers))
    if agent is None or not (has_check or save_s or policies.clean or leased):
        return
    if agent.has_upstream_names:
        yield refusal(agent.path, "an agent with upstream's variables", "ours", "leave the option out, or rename them")
        return
    is_supervisor = member.mode == "supervisor"
    workers = (agent,) if is_supervisor else tuple(worker for worker in member.workers if worker.calls(GUARD))
    if not workers and (has_check or save_s or policies.clean):
        asked = "a check before joining" if has_check else wire.SAVE_WITHIN if save_s else "--clean"
        fix = f"write the command of the worker's container, for a guard; or do without {asked}"
        yield refusal(member.pod_path, "no guard in the Pod", f"a guard or a supervisor for {asked}", fix)
        return
    if has_check:
        yield from _check(member, agent, [one for one in workers if policies.check or checks(one)], policies)
    if save_s:
        yield from _saving(member, agent, save_s)
    for worker in workers if policies.clean else ():
        yield from _set(worker, "WORKER_CLEAN", "\n".join(policies.clean))
    if leased:
        yield from _lease(member, agent, is_supervisor=is_supervisor)


def checks(worker: Container) -> bool:
    """Say whether a worker's own variables name a check before joining."""
    return _CHECK in worker.env


def _check(
    member: Member, agent: Container, workers: Sequence[Container], policies: PolicyOptions
) -> Iterator[Finding]:
    timeout_s = policies.check_timeout_s
    variables = {
        _CHECK: _ESCAPED.sub("$$", policies.check) or None,
        "BEFORE_ANNOUNCE_TIMEOUT_S": None if timeout_s is None else f"{timeout_s:g}",
        "BEFORE_ANNOUNCE_UNANSWERED": policies.unanswered,
    }
    for worker in workers:
        for name, text in variables.items():
            if text is not None:
                yield from _set(worker, name, text)
        for rule in worker.raw.get("restartPolicyRules") or ():
            codes = rule.get("exitCodes") or {}
            values = codes.get("values") or []
            if codes.get("operator") == "NotIn" and CHECK_FAILED_EXIT_CODE not in values:
                codes["values"] = [*values, CHECK_FAILED_EXIT_CODE]
        for position, final in final_codes_by_rule(member.job_spec, worker.name).items():
            if CHECK_FAILED_EXIT_CODE in final:
                path = f"{member.job_path}.podFailurePolicy.rules[{position}]"
                fix = f"let a rule before it say Ignore for exit code {CHECK_FAILED_EXIT_CODE}, or do without the check"
                yield refusal(
                    path, f"an end of the Job after exit code {CHECK_FAILED_EXIT_CODE}", "a Pod that is replaced", fix
                )
        after = ending(worker.raw, CHECK_FAILED_EXIT_CODE, str(member.pod_spec.get("restartPolicy")))
        if after is not Ending.STAYS:
            fix = "a Pod whose check fails must end, so that its Job replaces it; let no rule match the code"
            yield refusal(
                f"{worker.path}.restartPolicyRules",
                f"after exit code {CHECK_FAILED_EXIT_CODE} {after.value}",
                "nothing",
                fix,
            )
    if member.mode == "sidecar":
        yield from _set(agent, "CHECKS_BEFORE_ANNOUNCE", str(len(workers)))


def _save_s(member: Member) -> int:
    """Return the whole seconds that workers may take to save; 0 for none, or what the agent will refuse."""
    with suppress(ValueError):
        return ceil(float(member.settings.get(wire.SAVE_WITHIN) or 0))
    return 0


def _saving(member: Member, agent: Container, within_s: int) -> Iterator[Finding]:
    if member.raw.get("replicas") not in (None, 1) and "JOB_INDEX" not in agent.env:
        path = f"metadata.labels['{wire.JOB_INDEX}']"
        fill(agent.raw, "env", []).append(agent_pieces.from_field("JOB_INDEX", path))
    grace_s = member.pod_spec.get("terminationGracePeriodSeconds")
    if grace_s is None:
        member.pod_spec["terminationGracePeriodSeconds"] = within_s + AFTER_SAVING_S
    elif isinstance(grace_s, int) and grace_s <= within_s:
        path = f"{member.pod_path}.terminationGracePeriodSeconds"
        fix = "raise it, by the time that the worker takes to end; or save within less"
        yield refusal(path, str(grace_s), f"more than the {within_s} s to save", fix)


def _lease(member: Member, agent: Container, *, is_supervisor: bool) -> Iterator[Finding]:
    if not is_supervisor and agent.restart_depth != wire.DEPTH_PROCESS:
        found, needed = "an agent that ends before its worker", "one that stays, for a lease"
        yield refusal(agent.path, found, needed, f"--restart process, --mode supervisor, or no {wire.FENCE_AFTER}")
        return
    if member.job_spec.get("podFailurePolicy"):
        fix = f"remove it, or do without {wire.FENCE_AFTER}: Kubernetes then replaces no Pod before its end"
        yield refusal(f"{member.job_path}.podFailurePolicy", "one", "none beside leases", fix)


_OPTIONS: Final = {
    _CHECK: "--before-announce",
    "BEFORE_ANNOUNCE_TIMEOUT_S": "--before-announce-timeout",
    "BEFORE_ANNOUNCE_UNANSWERED": "--before-announce-unanswered",
    "WORKER_CLEAN": "--clean",
}


def _set(container: Container, name: str, text: str) -> Iterator[Finding]:
    """Set a variable; one with another value, or an option of the command that wins over it, is refused."""
    fix = "change it there, or leave the option out"
    words = container.arguments(RUN) or container.arguments(GUARD) or []
    own = words[: words.index("--")] if "--" in words else words
    if (option := _OPTIONS.get(name)) and any(word.partition("=")[0] == option for word in own):
        yield refusal(f"{container.path}.command", f"{option} already", "it in one place", fix)
        return
    present = container.env.get(name)
    if present is None:
        fill(container.raw, "env", []).append({"name": name, "value": text})
    elif present.get("value") != text:
        found = present.get("value", "a field or a key of another object")
        yield refusal(container.path_of(name), found, text, fix)
