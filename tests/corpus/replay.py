"""
Let a controller hear of a group's failure as agents and kubelet would tell it, and return its verdict.

The moments are those of the real ranks. What lies between a rank's end and the controller is drawn: an agent looks for
an exception each 0.25 s, and a request takes some milliseconds. The first failure that is told ends the epoch: who has
not failed by then is ended, and tells only how far it was. Membership, signs and the words of the status are the real
ones; no clock runs.
"""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import Any, Final

from inplace.common.jobset.kinds import Pod
from inplace.common.jobset.last_restart import ended
from inplace.common.jobset.scopes import WHOLE
from inplace.common.jobset.verdict import Verdict, verdict_of
from inplace.common.protocol.last_progress import LastProgress
from inplace.common.wire import names as wire
from inplace.common.wire.last_line import last_line_text
from inplace.common.wire.worker_failure import WorkerFailure, failure_text
from inplace.controller.tracking.membership import Membership
from tests.controller.objects import make_job, make_jobset, make_membership, make_pod
from tests.corpus.faults import Fault, RankEnd

BEGAN_S: Final = 1_790_000_000.0
LOOK_S: Final = 0.25  # agent/progress/last_words.py's
REQUEST_S: Final = (0.004, 0.05)
STALL_S: Final = 300.0  # of a watchdog, where nobody ends by itself


@dataclass(frozen=True, slots=True)
class Replay:
    """What a controller made of one group.

    Args:
        verdict: as the status has it when the restart has ended.
        entry: status.lastGroupRestart then.
        told: the ranks of which a failure was told.
        after_s: from the fault until the culprit's own end was told; None where it did not end.
    """

    verdict: Verdict
    entry: dict[str, Any]
    told: tuple[int, ...]
    after_s: float | None

    @property
    def rank(self) -> int | None:
        """Return the rank that is to blame; None where nobody is named."""
        culprit = self.verdict.culprit
        return int(culprit.pod.removeprefix("p")) if culprit is not None and culprit.pod else None


def replay(fault: Fault, rng: Random) -> Replay | None:
    """Return what a controller makes of a group's failure; None where nobody tells of one.

    Args:
        fault: the group.
        rng: draws what lies between a rank and the controller.
    """
    told = _told(fault, rng)
    if not told:
        return None
    membership, pods = crowd(len(fault.ends))
    for at_s, end in told:
        new = make_pod(end.rank, 1, **_parts(end, at_s))
        membership.pod_changed(pods[end.rank], new)
        pods[end.rank] = new
    over = make_jobset(version=3, pods=len(pods), syncedEpoch=1, deprecatedEpoch=1)
    membership.jobset_changed(make_jobset(version=2, pods=len(pods), syncedEpoch=1), over)
    group = membership.get(("default", "train"))
    assert group is not None
    last_s = max((at_s for at_s, _ in told), default=0.0)
    failed = {end.rank for _, end in told}
    for end in fault.ends:
        new = make_pod(end.rank, 2, **_announced(end, last_s, end.rank in failed))
        membership.pod_changed(pods[end.rank], new)
        if end.step is not None:  # as controller/tracking/phases.py reads it from the announcement
            group.ledgers[WHOLE].silence.note(new.metadata.name, "", LastProgress(end.step, 1.0))
    scope = group.jobset.scopes[WHOLE]
    cause = group.causes()[WHOLE]
    entry = ended(group.jobset.status, scope, cause, "2026-09-21T13:20:00Z", group.silent().get(WHOLE))
    assert entry is not None
    first = next((at_s for at_s, end in told if end.rank in fault.culprits and end.code is not None), None)
    return Replay(verdict_of(entry), entry, tuple(end.rank for _, end in told), first)


def crowd(count: int) -> tuple[Membership, list[Pod]]:
    """Return a membership with a group of so many Pods that runs."""
    membership = make_membership()
    manifest = make_jobset(pods=count)
    membership.jobset_changed(None, manifest)
    membership.job_changed(None, make_job())
    pods = [make_pod(number, 1) for number in range(count)]
    for pod in pods:
        membership.pod_changed(None, pod)
    membership.jobset_changed(manifest, make_jobset(version=2, pods=count, syncedEpoch=1))
    return membership, pods


def failed(count: int) -> list[Pod]:
    """Return so many Pods whose workers failed: the last one by its own error, the others because they lost it."""
    lines = [f"RuntimeError: Connection closed by peer [10.0.{at % 200}.7]:{at + 1024}" for at in range(count - 1)]
    ends = [RankEnd(at, 1, 0.0, None, None, line) for at, line in enumerate([*lines, "KeyError: 'labels'"])]
    return [make_pod(end.rank, 1, **_parts(end, 0.0)) for end in ends]


def _told(fault: Fault, rng: Random) -> list[tuple[float, RankEnd]]:
    """Return the failures that are told and when, in their order."""
    found = []
    for end in fault.ends:
        moments = [end.ended_s] if end.ended_s is not None and end.code is not None else []
        if end.raised_s is not None:
            moments.append(max(0.0, end.raised_s) + rng.uniform(0.0, LOOK_S))
        if moments:
            found.append((min(moments) + rng.uniform(*REQUEST_S), end))
    found.sort(key=lambda one: one[0])
    if not found:  # all wait for one that hangs: a watchdog of any of them tells, where they tell their steps
        tellers = [end for end in fault.ends if end.step is not None]
        return [(STALL_S, rng.choice(tellers))] if tellers else []
    first_s = next((at_s for at_s, end in found if end.code != 0), found[0][0])  # a completion alone ends no epoch
    over_s = first_s + 2 * rng.uniform(*REQUEST_S)  # the status is written, and the agents see it
    return [(at_s, end) for at_s, end in found if _end_s(end) <= over_s]


def _end_s(end: RankEnd) -> float:
    """Return when a rank had failed."""
    return min(one for one in (end.raised_s, end.ended_s) if one is not None)


def _parts(end: RankEnd, at_s: float) -> dict[str, Any]:
    """Return what a Pod shows whose worker has failed."""
    if end.code is None and end.raised_s is None:
        hang = WorkerFailure(1, None, BEGAN_S + STALL_S, stalled_s=int(STALL_S), step=end.step)
        return {"metadata": {"annotations": {wire.EPOCH: "1", wire.WORKER_FAILED: failure_text(hang)}}}
    moment_s = BEGAN_S + (end.raised_s if end.raised_s is not None else end.ended_s or at_s)
    if end.code == 0:
        finished = "2026-09-21T14:13:20Z"
        state = {"terminated": {"exitCode": 0, "reason": "Completed", "finishedAt": finished}}
        return {"status": {"phase": "Succeeded", "containerStatuses": [{"name": "w", "state": state}]}}
    keys = {
        wire.EPOCH: "1",
        wire.WORKER_FAILED: failure_text(WorkerFailure(1, end.code or _code_told(end), moment_s)),
        wire.LAST_LINE: last_line_text(1, moment_s, end.line),
    }
    return {"metadata": {"annotations": keys}}


def _code_told(end: RankEnd) -> int:
    """Return the code with which a rank is about to end that hangs in an exit handler: its last words have it."""
    code = end.line.removeprefix("SystemExit: ")
    return int(code) if code.isdigit() else 1


def _announced(end: RankEnd, last_s: float, has_failed: bool) -> dict[str, Any]:
    """Return what a Pod shows that announces the next epoch."""
    shown = _parts(end, last_s) if has_failed and end.code != 0 else {"metadata": {"annotations": {}}}
    shown["metadata"]["annotations"] |= {wire.EPOCH: "2"}
    return shown
