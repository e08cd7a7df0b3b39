"""
Add what the policies of docs/policies.md need: annotations of the JobSet, and settings of its agents and workers. Pure.

Settings become variables, so that a command which has an agent already stays as it is. One that says otherwise is
refused, as is a policy that the Pod's kind of agent cannot carry out.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal

from inplace.agent.start.arguments import ArgumentsError, clean_words
from inplace.cli.inject.worker import fill
from inplace.cli.manifests import agent_pieces
from inplace.cli.manifests.finding import Finding, refusal
from inplace.cli.manifests.pod_failure_policy import final_codes_by_rule
from inplace.cli.manifests.pod_roles import GUARD, RUN, Container, Member
from inplace.cli.manifests.restart_rules import Ending, ending
from inplace.common.kube.resources import KubeObject
from inplace.common.protocol.errors import RemoteProtocolError
from inplace.common.wire import names as wire
from inplace.common.wire.unfit import CHECK_FAILED_EXIT_CODE
from inplace.controller.spec.bad_nodes import read_bad_nodes
from inplace.controller.spec.requests import read_fence

AFTER_SAVING_S: Final = 30  # for the worker's end, as Kubernetes gives a Pod that has nothing to save
_ESCAPED: Final = re.compile(r"\$(?=[$(])")  # kubelet replaces $(NAME) in values, and $$ by $


@dataclass(frozen=True, slots=True)
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
    """

    check: str = ""
    check_timeout_s: float | None = None
    unanswered: Literal["join", "leave"] | None = None
    save_within_s: int = 0
    fence_after_s: str | None = None
    bad_nodes: str | None = None
    clean: tuple[str, ...] = ()


NO_POLICIES: Final = PolicyOptions()


def annotate(metadata: KubeObject, policies: PolicyOptions) -> Iterator[Finding]:
    """Write the annotations; yield values that cannot be read, and annotations that say otherwise."""
    given = {wire.FENCE_AFTER: policies.fence_after_s, wire.BAD_NODES: policies.bad_nodes}
    options = {name: text for name, text in given.items() if text is not None}
    for read in (read_fence, read_bad_nodes):
        try:
            read(options)
        except RemoteProtocolError as error:
            needed, _, found = str(error).partition(": expected ")[2].partition(";")[0].partition(", saw ")
            option = "--fence-after" if read is read_fence else "--bad-nodes"
            yield refusal(option, found, needed, "correct it")
    if policies.clean:
        try:
            clean_words("--clean", "\n".join(policies.clean))
        except ArgumentsError as error:
            needed, _, found = str(error).partition(": expected ")[2].partition(", saw ")
            yield refusal("--clean", found, needed, "correct it")
    for name, text in options.items():
        old = (metadata.get("annotations") or {}).get(name)
        if old not in (None, text):
            fix = "change the annotation, or leave the option out"
            yield refusal(f'metadata.annotations["{name}"]', old, text, fix)
        fill(metadata, "annotations", {})[name] = text
    if not policies.check and (policies.check_timeout_s is not None or policies.unanswered is not None):
        fix = "name the check, or leave the other options out"
        yield refusal("--before-announce", "nothing beside its other options", "a command", fix)


def add_policies(member: Member, policies: PolicyOptions, *, leased: bool) -> Iterator[Finding]:
    """Set what a Pod with an agent needs.

    Args:
        member: the Pods, which have their agent by now.
        policies: what the user asks for.
        leased: the JobSet's annotation asks for leases.
    """
    member = replace(member)  # as it stands now
    agent = member.agent
    if agent is None or not (policies.check or policies.save_within_s or policies.clean or leased):
        return
    if agent.has_upstream_names:
        yield refusal(agent.path, "an agent with upstream's variables", "ours", "leave the option out, or rename them")
        return
    is_supervisor = member.mode == "supervisor"
    workers = (agent,) if is_supervisor else tuple(worker for worker in member.workers if worker.calls(GUARD))
    if not workers and (policies.check or policies.save_within_s or policies.clean):
        option = "--before-announce" if policies.check else "--save-within" if policies.save_within_s else "--clean"
        yield refusal(option, "no guard in the Pod", "a guard or a supervisor", "--barrier guard, or --mode supervisor")
        return
    if policies.check:
        yield from _check(member, agent, workers, policies)
    if policies.save_within_s:
        yield from _saving(member, agent, workers, policies.save_within_s)
    for worker in workers if policies.clean else ():
        yield from _set(worker, "WORKER_CLEAN", "\n".join(policies.clean))
    if leased:
        yield from _lease(member, agent, is_supervisor=is_supervisor)


def _check(
    member: Member, agent: Container, workers: Sequence[Container], policies: PolicyOptions
) -> Iterator[Finding]:
    timeout_s = policies.check_timeout_s
    variables = {
        "BEFORE_ANNOUNCE": _ESCAPED.sub("$$", policies.check),
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


def _saving(member: Member, agent: Container, workers: Sequence[Container], within_s: int) -> Iterator[Finding]:
    for container in workers if member.mode == "supervisor" else (*workers, agent):
        yield from _set(container, "SAVE_WITHIN_S", str(within_s))
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
    depth = agent.env.get("RESTART_DEPTH", {}).get("value")
    if not is_supervisor and depth != wire.DEPTH_PROCESS:
        found, needed = "an agent that ends before its worker", "one that stays, for a lease"
        yield refusal(agent.path, found, needed, f"--restart process, --mode supervisor, or no {wire.FENCE_AFTER}")
        return
    if member.job_spec.get("podFailurePolicy"):
        fix = f"remove it, or do without {wire.FENCE_AFTER}: Kubernetes then replaces no Pod before its end"
        yield refusal(f"{member.job_path}.podFailurePolicy", "one", "none beside leases", fix)
        return
    if "FENCE_AFTER_S" not in agent.env:
        path = f"metadata.annotations['{wire.FENCE_AFTER}']"
        fill(agent.raw, "env", []).append(agent_pieces.from_field("FENCE_AFTER_S", path))


_OPTIONS: Final = {
    "BEFORE_ANNOUNCE": "--before-announce",
    "BEFORE_ANNOUNCE_TIMEOUT_S": "--before-announce-timeout",
    "BEFORE_ANNOUNCE_UNANSWERED": "--before-announce-unanswered",
    "SAVE_WITHIN_S": "--save-within",
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
