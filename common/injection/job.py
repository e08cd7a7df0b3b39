"""Add the agent to a Job template, in place: what the Job, its Pods and their containers need. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from inplace.common.agent_command import GUARD
from inplace.common.injection import index_backoff
from inplace.common.injection.agent_pieces import DEPTH, SAVE_WITHIN, SETTINGS
from inplace.common.injection.finding import REFUSED, Finding, refusal, shown
from inplace.common.injection.pod import InjectOptions, change_pod
from inplace.common.injection.pod_roles import Member
from inplace.common.injection.policies import add_policies
from inplace.common.jobset.settings import AGENT, WORKERS
from inplace.common.wire import names as wire


def add_agent(member: Member, options: InjectOptions) -> Iterator[Finding]:
    """Add what is missing for a restart in place; what is there stays, so that doing it twice changes nothing.

    JOB_FIELDS are the caller's: the controller's Jobs have them before they are fenced (controller/plan/jobs.py).

    Yields:
        what a person has to decide first; the template is then changed by half, and of no use.
    """
    options = replace(options, workers=options.workers or named_workers(member.annotations))
    yield from change_job(member)
    if not member.containers:
        path = f"{member.pod_path}.containers"
        yield refusal(path, None, "the worker's container", "add it: nobody knows what to run")
        return
    yield from change_pod(member, options)
    yield from add_policies(member)
    yield from unread_settings(replace(member), REFUSED)


def named_workers(annotations: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the names of containers that a JobSet's annotation says to train."""
    names: tuple[str, ...] = AGENT.read_or_default(annotations).get(WORKERS, ())
    return names


def change_job(member: Member) -> Iterator[Finding]:
    """Make the Job one whose Pods all run at once."""
    spec, path = member.job_spec, member.job_path
    if spec.get("completionMode", "Indexed") != "Indexed":
        fix = "the barrier counts Pods by their index; remove the field if the worker does not mind to be Indexed"
        yield refusal(f"{path}.completionMode", spec["completionMode"], "Indexed", fix)
    counts = {name: spec[name] for name in ("parallelism", "completions") if spec.get(name) is not None}
    if len(set(counts.values())) > 1:
        fix = "all Pods of a Job run at once; set both to the number of Pods"
        yield refusal(f"{path}.completions", spec["completions"], f"parallelism ({spec['parallelism']})", fix)
    else:
        spec |= dict.fromkeys(("parallelism", "completions"), next(iter(counts.values()), 1))
    if index_backoff.is_limited(spec):
        fix = "an index that failed for good would leave the barrier waiting for ever; remove the field"
        yield refusal(f"{path}.{index_backoff.FIELD}", spec[index_backoff.FIELD], "nothing", fix)
    member.pod_spec["restartPolicy"] = "Never"
    index_backoff.back_off_per_index(spec)


# Find settings that Pods carry as annotations, and that their agents or guards do not read (docs/adr/0084). Pure.


def unread_settings(member: Member, rule: str) -> Iterator[Finding]:
    """Yield each variable that has not its annotation's value; one from a ConfigMap or a Secret counts as correct."""
    agent = member.agent
    if agent is None:
        return
    guards = [worker for worker in member.workers if worker.calls(GUARD)]
    for name, annotation in wire.SETTINGS.items():
        if annotation not in member.settings or (name == DEPTH and member.place == "supervisor"):
            continue
        text = str(member.settings[annotation])
        for container in (agent, *guards) if name == SAVE_WITHIN else (agent,):
            value = container.values.get(name)
            if (value or "") != text and (value is not None or name not in container.env):
                needed = f"{text or 'nothing'}, by fieldRef {SETTINGS[name]}"
                fix = f"read it so, or remove {annotation}"
                yield Finding(rule, container.path_of(name), shown(value), needed, fix)
