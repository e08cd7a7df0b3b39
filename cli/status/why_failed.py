"""Explain why a JobSet failed, for good: its Pods are gone, or soon will be, so status and spec say it. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Final

from inplace.agent.settings.command import NOT_EXECUTABLE, NOT_FOUND
from inplace.cli.group.pod_facts import PodFact
from inplace.cli.group.state import GroupState
from inplace.cli.status.advice import Obstacle, log_advice
from inplace.cli.status.document import failure_text
from inplace.cli.status.history import repeats_text
from inplace.common.agent_command import agent_arguments
from inplace.common.injection.pod_roles import members
from inplace.common.jobset.causes import Trigger
from inplace.common.jobset.conditions import BEFORE_JOINING
from inplace.common.jobset.jobset import JobSet
from inplace.common.jobset.restart_history import history_of
from inplace.controller.api.object_events import Event

DEADLINE: Final = "DeadlineExceeded"  # the Job controller's reason, of its condition and its Event
START_ERROR: Final = 128  # containerd's exit code of a container whose program cannot be started
ENDED_CONTAINER: Final = re.compile(r"container (?P<name>\S+) exited with (?P<code>\d+)")  # str(Failure)


def failed_job(state: GroupState) -> str:
    """Return the name of the Job whose failure ended the JobSet, "" where no condition names one."""
    message = (state.conditions or {}).get("Failed", {}).get("message", "")
    return message.rpartition("(first failed job: ")[2].rstrip(")") if "(first failed job: " in message else ""


def why_failed(
    state: GroupState, condition: Mapping[str, str], job_events: Iterable[Event], pods: Iterable[PodFact] = ()
) -> Obstacle:
    """Return why it failed, for good.

    Args:
        state: how it stands.
        condition: Failed.
        job_events: of the Job that its message names.
        pods: those that are left.
    """
    reason, message = condition.get("reason", ""), condition.get("message", "")
    if any(event.reason == DEADLINE for event in job_events):
        text = f"{DEADLINE}: Job {failed_job(state)} was active for longer than its activeDeadlineSeconds"
        advice = "a restart in place keeps the Job, so its deadline is for the whole run: raise it, or remove it"
        return Obstacle(DEADLINE, text, advice)
    if BEFORE_JOINING in message:
        return _of_never_joined(state, message)
    if reason != "ReachedMaxRestarts":
        job = failed_job(state)
        look = f"see what failed (kubectl describe job {job} -n {state.namespace}); " if job else ""
        return Obstacle(reason or "Failed", message, f"{look}remove the cause, and recreate the JobSet")
    last = state.last.first_failure if state.last is not None else None
    cause = f"; the last failure was {failure_text(last)}" if last else ""
    text = f"maxRestarts is {state.allowed}, and one more failure happened{cause}"
    if state.jobset is not None and (again := repeats_text(history_of(state.jobset.status))):
        text += f"; {again} (inplace history {state.name} -n {state.namespace})"
    if state.last is not None and state.last.trigger == Trigger.POD_LOST.value:
        look = f"kubectl get events -n {state.namespace} --field-selector involvedObject.kind=Pod"
        return Obstacle(reason, text, f"find out what deletes its Pods ({look}), and recreate the JobSet")
    log = log_advice(last, pods, state.name, state.namespace)
    advice = f"{log}; correct the cause of the workers' end, and recreate the JobSet"
    return Obstacle(reason, text, advice)


def _of_never_joined(state: GroupState, message: str) -> Obstacle:
    """Say which container ended before its Pod joined, and what the template lets it start: the Pod is gone."""
    found = ENDED_CONTAINER.search(message)
    advice = "mend what that container starts with, and create the JobSet again"
    if found is not None and state.jobset is not None:
        name, code = found["name"], int(found["code"])
        if code in (NOT_EXECUTABLE, NOT_FOUND, START_ERROR):
            program = _program(state.jobset, name, code) or "such program"
            advice = f"the image has no {program} (container {name}): correct the command or the image"
    return Obstacle("NeverJoined", message, advice)


def _program(jobset: JobSet, container: str, code: int) -> str:
    """Return what a container could not start: its own program, or the worker's behind a supervisor; "" for unknown."""
    every = (one for member in members(jobset.raw) for one in member.every_container)
    for one in every:
        words = one.words
        if one.name == container and words:
            if code != START_ERROR and agent_arguments(words) and "--" in words[:-1]:
                return words[words.index("--") + 1]
            return words[0] if one.raw.get("command") else ""
    return ""
