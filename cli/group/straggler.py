"""Find why one slot is late, from what scheduler, kubelet and agent wrote on its Pod. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from inplace.agent.settings.command import NOT_EXECUTABLE, NOT_FOUND
from inplace.agent.settings.exit_code import UPSTREAM_RESTART_IN_PLACE, ExitCode
from inplace.cli.group.pod_facts import Container, PodFact, Terminated
from inplace.common.injection.index_backoff import next_pod_words
from inplace.common.jobset.blocked import CREATION, IMAGE, both_ends
from inplace.common.jobset.causes import unix_time
from inplace.common.jobset.containers import RESTARTED_WHOLE
from inplace.common.wire import names as wire
from inplace.common.wire.exit_words import exit_words

RESTARTING_CONDITION = "AllContainersRestarting"  # kubelet's, while RestartAllContainers is carried out (KEP-5532)
NODE_REASONS = ("NodeLost", "NodeStatusUnknown", "NodeNotReady", "DeletionByTaintManager")
START_ERRORS = ("StartError", "ContainerCannotRun")  # the runtime's, for a command that the image does not have
AT_ONCE_S = 5.0  # a container that ends so soon did nothing; kubelet's times are whole seconds
# How agents ask for a restart, and how containers are stopped for one.
RESTART_EXITS = (ExitCode.RESTART_IN_PLACE, UPSTREAM_RESTART_IN_PLACE, ExitCode.TERMINATED)
LOOPS_LEAST = 3  # a group restart in between starts containers again, too


class Why(Enum):
    """One word for each reason, most specific first; `cli.status.advice` has the advice for each."""

    MISSING = "no Pod"
    GATED = "held by a scheduling gate"
    UNSCHEDULABLE = "Pending: unschedulable"
    UNSCHEDULED = "Pending: not scheduled yet"
    NODE_LOST = "node lost"
    HELD = "it has ended, and a finalizer keeps it"
    TERMINATING = "terminating"
    FAILED = "Pod failed"
    SUCCEEDED = "completed"
    IMAGE = IMAGE
    CONFIG = CREATION
    INIT_FAILED = "init container failed"
    CRASHING = "crashes again and again"
    NOT_FOUND = "its command cannot be run"
    AGENT_REFUSES = "agent ends at once"
    RESTARTING = "containers start again"
    CREATING = "containers are being created"
    NO_AGENT = "no agent in it"
    SILENT = "agent has not announced"
    UNTOLD = "the controller has not ended its epoch yet"
    BEHIND = "agent has not followed"
    AHEAD = "announced an epoch that the group has not reached"


@dataclass(frozen=True, slots=True)
class Straggler:
    """A slot that its group waits for.

    Args:
        slot: such as `workers-0-3`.
        pod: its name; None for no Pod.
        epoch: what it announced; 0 for nothing.
        detail: another program's message; "" for none.
        uid: of the Pod; "" where it was not read.
        log: what `kubectl logs` must be asked for; "" where no container is to blame.
    """

    slot: str
    pod: str | None
    node: str | None
    epoch: int
    why: Why
    detail: str = ""
    uid: str = ""
    log: str = ""

    @property
    def name(self) -> str:
        """Return the Pod's name, or the slot's where there is none."""
        return self.pod or self.slot

    @property
    def reason(self) -> str:
        """Return why, in words."""
        return f"{self.why.value}: {self.detail}" if self.detail else self.why.value


class _Reason(NamedTuple):
    """Why a Pod is late, in another program's words, and the container to blame."""

    why: Why
    detail: str = ""
    container: Container | None = None


def straggler_of(slot: str, pod: PodFact | None, deprecated: int, target: int, *, has_agent: bool = True) -> Straggler:
    """Return why a slot is late.

    Args:
        slot: such as `workers-0-3`.
        pod: its Pod; None for none.
        deprecated: D of its scope.
        target: the epoch where it should be.
        has_agent: its template has an agent; else the Pod itself is looked at.
    """
    if pod is None:
        return Straggler(slot, None, None, 0, Why.MISSING)
    is_ahead = pod.is_live and pod.epoch > target
    reason = _Reason(Why.AHEAD, f"epoch {pod.epoch}") if is_ahead else _why(pod, deprecated)
    if reason.why is Why.SILENT and not (has_agent or pod.may_have_agent):
        reason = _Reason(Why.NO_AGENT)
    log = log_words(pod.name, reason.container)
    return Straggler(
        slot, pod.name, pod.spec.node_name, pod.epoch, reason.why, both_ends(reason.detail), pod.metadata.uid, log
    )


def log_words(pod: str, container: Container | None) -> str:
    """Return the arguments of `kubectl logs` for the end of a container; "" for none.

    kubelet keeps the log of a container that ended, and with --previous that of the one before; none of one that a
    restart of all containers removed.
    """
    if container is None:
        return ""
    last = container.last_state.terminated
    is_again = container.state.running is not None and last is not None and last.reason != RESTARTED_WHOLE
    return f"{pod} -c {container.name}" + (" --previous" if is_again else "")


def _why(pod: PodFact, deprecated: int) -> _Reason:
    if pod.status.phase is None and not pod.is_leaving:  # its metadata alone were read
        return _of_agent(pod, deprecated)
    return _of_placement(pod) or _of_pod(pod) or _of_containers(pod) or _of_agent(pod, deprecated)


def _of_placement(pod: PodFact) -> _Reason | None:
    if pod.spec.node_name is not None:
        return None
    if pod.is_leaving or pod.status.phase in ("Failed", "Succeeded"):
        return None
    gates = [gate.name for gate in pod.spec.scheduling_gates or ()]
    if gates:
        ours = ", exclusive placement" if wire.PLACEMENT_GATE in gates else ""
        return _Reason(Why.GATED, ", ".join(gates) + ours)
    scheduled = pod.condition("PodScheduled")
    if scheduled is not None and scheduled.status == "False" and scheduled.reason == "Unschedulable":
        return _Reason(Why.UNSCHEDULABLE, scheduled.message or "")
    return _Reason(Why.UNSCHEDULED)


def _of_pod(pod: PodFact) -> _Reason | None:
    if held := pod.held_by:
        return _Reason(Why.HELD, ", ".join(held))
    ready, disrupted = pod.condition("Ready"), pod.condition("DisruptionTarget")
    reasons = {pod.status.reason, ready.reason if ready is not None else None}
    if disrupted is not None and disrupted.status == "True":
        reasons.add(disrupted.reason)
    if reasons & set(NODE_REASONS):
        return _Reason(Why.NODE_LOST, pod.status.message or f"node {pod.spec.node_name}")
    if pod.status.phase == "Failed":
        reason = _of_init(pod) or _of_failed(pod)
        return reason._replace(detail="; ".join(filter(None, (_next_pod(pod), reason.detail))))
    if pod.is_leaving:
        return _Reason(Why.TERMINATING, f"since {pod.metadata.deletion_timestamp}")
    return _Reason(Why.SUCCEEDED) if pod.status.phase == "Succeeded" else None


def _next_pod(pod: PodFact) -> str:
    """Say when its Job makes the next Pod of its index; "" where that is not known."""
    keys = pod.metadata.annotations
    ends = [one.state.terminated.finished_at for one in pod.containers if one.state.terminated is not None]
    return "" if keys is None else next_pod_words(keys.index_failures, keys.index_failures_ignored, ends)


def _of_failed(pod: PodFact) -> _Reason:
    """Return why a Pod failed: in kubelet's or the Job controller's words, or by its first container that failed."""
    said = pod.status.message or pod.status.reason or ""
    failed = next((one for one in pod.workers if _has_failed(one)), None)
    if said or failed is None:
        return _Reason(Why.FAILED, said)
    return _Reason(Why.FAILED, _end_words(failed), failed)


def _of_init(pod: PodFact) -> _Reason | None:
    """Return which init container failed: nothing of the Pod starts before it succeeds."""
    failed = next((one for one in pod.inits if _has_failed(one)), None)
    if failed is None:
        return None
    if _cannot_run(failed):
        return _of_crash(pod, failed)
    loops = f", {failed.restart_count} restarts" if failed.restart_count else ""
    return _Reason(Why.INIT_FAILED, _end_words(failed) + loops, failed)


def _has_failed(container: Container) -> bool:
    """Say whether a container's last end is a failure, and it does not run; a restart in place is none."""
    ended = container.last_end
    if ended is None or container.state.running is not None:
        return False
    return ended.exit_code != 0 and ended.reason != RESTARTED_WHOLE


def _cannot_run(container: Container) -> bool:
    """Say whether a container ended because its command could not be run."""
    ended = container.last_end
    if ended is None:
        return False
    return ended.exit_code in (NOT_EXECUTABLE, NOT_FOUND) or ended.reason in START_ERRORS


def _end_words(container: Container) -> str:
    """Say how a container ended: its name, exit code and reason, and its own last words."""
    ended = container.last_end
    if ended is None:
        return f"container {container.name}"
    words = f"container {container.name}, {exit_words(ended.exit_code, ended.reason or '')}"
    return f"{words}: {ended.message}" if ended.message else words


def _of_containers(pod: PodFact) -> _Reason | None:
    for container in pod.containers:
        if (blocked := container.blocked) is not None:
            return _Reason(Why(blocked.what), blocked.detail)
        if container.state.waiting is not None and container.state.waiting.reason == "CrashLoopBackOff":
            return _of_init(pod) or _of_crash(pod, container)
    if (failed := _of_init(pod)) is not None:
        return failed
    loops = [container for container in pod.containers if _ends_at_once(pod, container)]
    if loops:
        return _of_crash(pod, max(loops, key=lambda container: container.restart_count))
    restarting = pod.condition(RESTARTING_CONDITION)
    if restarting is not None and restarting.status == "True":
        return _Reason(Why.RESTARTING)
    if any(one.state.terminated is not None for one in pod.containers if not _is_done(pod, one)):
        return _Reason(Why.RESTARTING)
    first = next(iter(pod.containers), None)
    if first is None or (first.state.waiting is not None and first.restart_count == 0):
        return _Reason(
            Why.CREATING, (first.state.waiting.reason or "") if first is not None and first.state.waiting else ""
        )
    return None


def _is_done(pod: PodFact, container: Container) -> bool:
    """Say whether this is an init container that ran to its good end."""
    ended = container.state.terminated
    return container not in pod.workers and ended is not None and ended.exit_code == 0


def _ends_at_once(pod: PodFact, container: Container) -> bool:
    """Say whether a container starts and ends at once, again and again; restart rules know no back-off."""
    ended = container.last_end
    if ended is None or container.restart_count < LOOPS_LEAST or ended.exit_code == 0:
        return False
    if ended.reason == RESTARTED_WHOLE and pod.epoch:
        return False  # a group restart in place looks like this
    if ended.reason in START_ERRORS:
        return True
    began_s, ended_s = unix_time(ended.started_at), unix_time(ended.finished_at)
    lived_s = ended_s - began_s if began_s is not None and ended_s is not None else AT_ONCE_S
    return lived_s < AT_ONCE_S and ended.exit_code not in RESTART_EXITS


def _of_crash(pod: PodFact, container: Container) -> _Reason:
    ended = container.last_end
    code = ended.exit_code if ended is not None else None
    if ended is not None and ended.reason == RESTARTED_WHOLE:
        return _Reason(
            Why.CRASHING, f"container {container.name}, {container.restart_count} restarts of the whole Pod", container
        )
    if ended is not None and _cannot_run(container):
        said = ended.message or _no_program(pod, container, ended)
        words = f"container {container.name}, exit code {code}, {container.restart_count} restarts"
        return _Reason(Why.NOT_FOUND, both_ends(f"{words}: {said}" if said else words), container)
    is_agents = container not in pod.workers or pod.epoch == 0  # once joined, a worker may end with any code
    if is_agents and code in (ExitCode.CONFIG, ExitCode.BARRIER_UNAVAILABLE, ExitCode.EPOCHS_EXHAUSTED, ExitCode.BUG):
        name = ExitCode(code).name.lower().replace("_", " ")
        return _Reason(Why.AGENT_REFUSES, f"container {container.name}, exit code {code} ({name})", container)
    loops = f", {container.restart_count} restarts" if container.restart_count >= LOOPS_LEAST else ""
    return _Reason(
        Why.CRASHING,
        f"container {container.name}" + (f", {exit_words(code)}{loops}" if code is not None else ""),
        container,
    )


def _no_program(pod: PodFact, container: Container, ended: Terminated) -> str:
    """Say that the image lacks the program that the container starts; once joined, 127 may be of what that starts."""
    program = pod.program_of(container.name)
    if program and (ended.reason in START_ERRORS or (ended.exit_code == NOT_FOUND and pod.epoch == 0)):
        return f"the image has no {program}"
    return {NOT_FOUND: "not found", NOT_EXECUTABLE: "not executable"}.get(ended.exit_code, "")


def _of_agent(pod: PodFact, deprecated: int) -> _Reason:
    if pod.epoch == 0:
        return _Reason(Why.SILENT)
    if pod.epoch > deprecated:  # its worker may run on: another Pod announced the next epoch
        return _Reason(Why.UNTOLD, f"at epoch {pod.epoch}")
    return _Reason(Why.BEHIND, f"at epoch {pod.epoch}, which is deprecated")
