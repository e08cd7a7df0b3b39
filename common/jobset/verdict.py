"""
The verdict on a failure: which Pod's worker is to blame, the class of the failure, and the words that prove it.

Pods tell of their failures one by one, in any order, while the group restarts. `explains` compares two of them; who
keeps the one that explains the other has the culprit when the last Pod has announced. Nothing waits for it: it goes
into the write that ends the restart. Two failures are compared by their evidence first:

    1  Kubernetes names the reason: the memory limit, the node
    2  the process ended by itself or by a signal: its own exception, its exit code
    3  an echo: its last line says that a peer, a connection or a collective failed
    4  nothing is known but that it ended

Evidence of one rank is ordered by its moment: when the exception ended a rank, or else when the process ended. A
process that fails may take a second to end, and its peers need a millisecond to notice. So an echo is never to blame
where any other failure is known. Where all that is told are echoes, or a hang, it is the one Pod that was furthest
behind, if steps can tell. Where moments cannot tell (kubelet has whole seconds), the failure that was told first stays.
Pure. docs/adr/0039, docs/adr/0110
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from typing import Any, Final

from msgspec.structs import replace

from inplace.common.bare.record import record
from inplace.common.jobset.causes import Failure, Trigger, failure_of_entry, trigger_of, unix_time
from inplace.common.jobset.failure_class import OF_REASONS, FailureClass, class_of
from inplace.common.jobset.furthest_behind import FurthestBehind, silent_of_entry
from inplace.common.wire.last_line import is_peers_sign

OWN_ENDS: Final = (Trigger.WORKER_EXIT, Trigger.STALLED)
"""What one of the group's own workers does, and what therefore may turn out to follow from another's failure."""


class Evidence(IntEnum):
    """How much a failure explains, the strongest first."""

    KUBERNETES = 1
    OWN = 2
    ECHO = 3
    NONE = 4


@record
class Verdict:
    """What is to blame for a failure.

    Args:
        found: the class.
        culprit: the Pod, and how its worker failed; None where nobody can say.
    """

    found: FailureClass
    culprit: Failure | None

    @property
    def proof(self) -> str:
        """Return the words that prove it: the last line, or Kubernetes' reason and message; "" for none."""
        if self.culprit is None:
            return ""
        return self.culprit.last_line or ": ".join(filter(None, (self.culprit.reason, self.culprit.message)))

    @property
    def advice(self) -> str:
        """Return what helps, in one sentence; "" where that is not known."""
        is_hang = self.culprit is not None and self.culprit.reason == Trigger.STALLED.reason
        return "inplace stacks --last says where its ranks were" if is_hang else self.found.advice

    def __str__(self) -> str:
        """Say it in one line, for a person."""
        culprit = self.culprit
        who = f"pod {culprit.pod}" if culprit is not None and culprit.pod else "no pod can be named"
        who += f" on node {culprit.node}" if culprit is not None and culprit.node else ""
        return ": ".join(filter(None, (f"{self.found.value}, {who}", self.proof)))


def evidence_of(failure: Failure) -> Evidence:
    """Return how much a failure explains."""
    if failure.reason in OF_REASONS:
        return Evidence.KUBERNETES
    if is_echo(failure):
        return Evidence.ECHO
    return Evidence.OWN if failure.exit_code is not None or failure.reason else Evidence.NONE


def is_echo(failure: Failure) -> bool:
    """Say whether a worker's last line tells of another rank's end, or of the network, and of nothing else."""
    if not failure.last_line:
        return False
    return is_peers_sign(failure.last_line) or class_of(Trigger.WORKER_EXIT, failure) is FailureClass.COLLECTIVE


def explains(late: Failure, known: Failure) -> bool:
    """Say whether a failure that was told later explains the one that was to blame so far."""
    mine, its = evidence_of(late), evidence_of(known)
    if mine is not its:
        return mine < its
    late_at, known_at = moment_of(late.finished_at), moment_of(known.finished_at)
    return late_at is not None and known_at is not None and late_at < known_at and late_at[1] <= known_at[0]


def moment_of(text: str) -> tuple[float, float] | None:
    """Return from when to when something happened: kubelet cuts the moment to whole seconds. None for no time."""
    at_s = unix_time(text)
    if at_s is None:
        return None
    return at_s, at_s if "." in text else at_s + 1.0


def verdict_of(entry: Mapping[str, Any], silent: FurthestBehind | None = None) -> Verdict:
    """Return the verdict on the failure that a status.lastGroupRestart tells of.

    Args:
        entry: of the status.
        silent: the Pods that were furthest behind, where the entry does not say it yet.
    """
    trigger, told = trigger_of(entry), failure_of_entry(entry)
    culprit, hang = told, None
    may_hang = trigger is Trigger.STALLED or (trigger is Trigger.WORKER_EXIT and told is not None and is_echo(told))
    if may_hang:
        silent = silent or silent_of_entry(entry)
        hang = silent.hang if silent is not None else None
    if hang is not None and told is not None and not hang.node and told.pod == hang.pod:
        hang = replace(hang, node=told.node)
    if trigger is Trigger.STALLED:
        culprit = hang  # any Pod may be the first to tell of a hang
    elif hang is not None and told is not None and hang.pod != told.pod:
        culprit = replace(hang, message=f"{hang.message}; pod {told.pod} lost it: {told.last_line}")
    return Verdict(class_of(trigger, told), culprit)
