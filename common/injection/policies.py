"""
Add what the policies of docs/policies.md need beside a JobSet's annotations and its workers' variables. Pure.

A policy that the Pod's kind of agent cannot carry out is refused.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from math import ceil
from typing import Final

from inplace.common.agent_command import GUARD
from inplace.common.injection import agent_pieces
from inplace.common.injection.finding import Finding, refusal, shown
from inplace.common.injection.pod_failure_policy import final_codes_by_rule
from inplace.common.injection.pod_roles import RUN, Container, Member
from inplace.common.injection.restart_rules import Ending, ending
from inplace.common.injection.worker import fill
from inplace.common.jobset.settings import RESTART
from inplace.common.wire import names as wire
from inplace.common.wire.unfit import CHECK_FAILED_EXIT_CODE

AFTER_SAVING_S: Final = 30  # for the worker's end, as Kubernetes gives a Pod that has nothing to save
CHECK: Final = "BEFORE_ANNOUNCE"
CHECKS: Final = "CHECKS_BEFORE_ANNOUNCE"


def add_policies(member: Member) -> Iterator[Finding]:
    """Set what a Pod, which has its agent by now, needs for what its annotations and its workers' variables ask for."""
    member = replace(member)  # as it stands now
    agent, save_s, leased = member.agent, _save_s(member), wire.FENCE_AFTER in member.annotations
    has_check = any(map(checks, member.workers))
    if agent is None or not (has_check or save_s or leased):
        return
    asked = CHECK if has_check else RESTART.named("save-within") if save_s else wire.FENCE_AFTER
    if agent.has_upstream_names:
        fix = f"rename them, or do without {asked}"
        yield refusal(agent.path, "an agent with upstream's variables", "ours", fix)
        return
    is_supervisor = member.place == "supervisor"
    workers = (agent,) if is_supervisor else tuple(worker for worker in member.workers if worker.calls(GUARD))
    if not workers and (has_check or save_s):
        fix = f"write the command of the worker's container, for a guard; or do without {asked}"
        yield refusal(member.pod_path, "no guard in the Pod", f"a guard or a supervisor for {asked}", fix)
        return
    if has_check:
        yield from _check(member, agent, [*filter(checks, workers)])
    if save_s:
        yield from _saving(member, agent, save_s)
    if leased:
        yield from _lease(member, agent, is_supervisor=is_supervisor)


def checks(worker: Container) -> bool:
    """Say whether a worker's variables, or its command, name a check before joining."""
    words = worker.arguments(RUN) or worker.arguments(GUARD) or []
    options = [word.partition("=")[0] for word in (words[: words.index("--")] if "--" in words else words)]
    variable = worker.env.get(CHECK, {})
    return bool(variable.get("value") or variable.get("valueFrom")) or "--before-announce" in options


def _check(member: Member, agent: Container, workers: Sequence[Container]) -> Iterator[Finding]:
    for worker in workers:
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
    if member.place != "sidecar":
        return
    guards = workers if member.has_rules else [worker for worker in member.workers if worker.calls(GUARD)]
    awaited, count = agent.env.get(CHECKS), str(len(guards))
    if awaited is None:
        fill(agent.raw, "env", []).append({"name": CHECKS, "value": count})
    elif awaited.get("value") != count:
        found = shown(awaited["value"]) if "value" in awaited else "a field or a key of another object"
        yield refusal(agent.path_of(CHECKS), found, count, "set it to the number of guards with a check")


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
        fix = f"{wire.RESTART}: process below a guard, --mode supervisor, or no {wire.FENCE_AFTER}"
        yield refusal(agent.path, found, needed, fix)
        return
    if member.job_spec.get("podFailurePolicy"):
        fix = f"remove it, or do without {wire.FENCE_AFTER}: Kubernetes then replaces no Pod before its end"
        yield refusal(f"{member.job_path}.podFailurePolicy", "one", "none beside leases", fix)
