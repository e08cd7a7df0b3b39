"""
Judge the safety properties after every event, from the API server's store and the running workers alone.

The judge does not ask agent or controller. A sidecar's worker has the epoch that its agent's process wrote last; a
guard's worker has the epoch that it was started with.
"""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from dataclasses import dataclass, field

from inplace.common.jobset.causes import unix_time
from inplace.common.kube.resources import KubeObject
from inplace.common.protocol.link import PlayedRank
from inplace.common.protocol.members import Members
from inplace.common.wire import names as wire
from inplace.common.wire.worker_failure import parse_failure
from inplace.simulator.apiserver.store import Event
from inplace.simulator.campaign.member_rules import MemberRules
from inplace.simulator.campaign.process import current_process
from inplace.simulator.campaign.resume_rules import ResumeRules
from inplace.simulator.campaign.slots import Slot, jobset_of, place_of, slot_of, slots_of
from inplace.simulator.campaign.trace import Trace
from inplace.simulator.cluster.cluster import VIRTUAL_EPOCH_S
from inplace.simulator.cluster.timeline import own_status

S1 = "S1 workers of two epochs run at once"
S2 = "S2 a slot's worker started twice in one epoch"
S3 = "S3 a worker started, or S was written, before all slots had announced the epoch"
S4 = "S4 S or D went back, or D passed S"
S5 = "S5 an in-place restart deleted a healthy Job"
S6 = "S6 more counted restarts than maxRestarts"
S7 = "S7 a group restart without a cause"
S10 = "S10 an agent told of a hang where every worker was healthy"
CLOCK_TOLERANCE_S = 0.001  # times in a status have microseconds
S11 = "S11 an epoch began before the wait after failures in vain was over"
S12 = "S12 an epoch began with a Pod that was to be replaced before"
TAMPERED_S = 30.0  # twice the Lease's duration


class ViolationError(Exception):
    """A property does not hold.

    Attributes:
        rule: which one.
        what: what the judge saw instead.
    """

    def __init__(self, rule: str, what: str) -> None:
        super().__init__(rule, what)  # another process makes the exception again from these two
        self.rule = rule
        self.what = what

    def __str__(self) -> str:
        return f"{self.rule}: {self.what}"


@dataclass(slots=True)
class History:
    """The past of one JobSet uid; a JobSet that is created later with the same name has its own.

    Attributes:
        announced: slot -> the greatest epoch that an agent ever wrote on a Pod of that slot.
        forged: (slot, epoch) of each announcement that a person wrote.
        started: (slot, epoch) of every worker, with the Pod's uid.
        at_work: epoch -> workers that run in it.
        hung: every epoch in which a worker hung.
        dying: (Pod's uid, epoch) of each worker that ended BEFORE its leftovers: its guard tells its agent after them.
        causes: how many events may have ended an epoch: deaths, and users' actions.
        free: how many epochs users' actions, recreations and disruptions may take without using up maxRestarts.
        sending: the highest S that a controller has sent, stored or not.
        grown: how often S grew: at the first start, and with each group restart. Edited annotations can move S by
            fifty in one group restart; that counts as one.
        ended: the JobSet as it was when it became terminal; later edits had no part in that.
        idle: ends of spares since S was written, by slot: they end no epoch, unless the next one has that slot.
    """

    synced: int = 0
    deprecated: int = 0
    announced: dict[Slot, int] = field(default_factory=dict)
    forged: set[tuple[Slot, str]] = field(default_factory=set)
    started: dict[tuple[Slot, int], str] = field(default_factory=dict)
    at_work: dict[int, int] = field(default_factory=dict)
    hung: set[int] = field(default_factory=set)
    dying: set[tuple[str, int]] = field(default_factory=set)
    causes: int = 0
    free: int = 0
    sending: int = 0
    grown: int = 0
    ended: KubeObject | None = None
    idle: Counter[Slot] = field(default_factory=Counter)

    def note_cause(self, slot: Slot | None, members: Members | None, count: int = 1) -> None:
        """Count events of a slot that may end an epoch; one of a spare ends none, while the members run."""
        is_spare = members is not None and slot is not None and place_of(members, slot) is None
        if is_spare and slot is not None and self.synced > self.deprecated:
            self.idle[slot] += count
        else:
            self.causes += count


@dataclass(slots=True)
class Running:
    """A worker that runs."""

    jobset: str
    slot: Slot
    pod: str
    epoch: int


class Judge:
    """Sees every write and every worker, and remembers the first violation.

    Args:
        trace: takes a line for each of them.
    """

    def __init__(self, trace: Trace) -> None:
        self.trace = trace
        self.violation: ViolationError | None = None
        self.clocks_agree = True  # no fault moved a controller's clock
        self.histories: dict[str, History] = defaultdict(History)
        self.running: dict[str, Running] = {}  # by Pod's uid
        self._epochs: dict[str, int] = {}  # by Pod's uid, as the Pod's agent wrote it
        self._told: dict[tuple[str, str], str] = {}  # by Pod's uid and annotation
        self._lease_tampered_s = float("-inf")
        self._jobsets: dict[str, KubeObject] = {}  # by uid
        self._jobs: dict[str, KubeObject] = {}  # by uid
        self._pods: dict[str, KubeObject] = {}
        self._ended: dict[str, int] = {}  # uids of Pods that ended or are being deleted, with the revision that says so
        self._vanished: set[str] = set()  # uids of Pods that were deleted BEFORE their phase was Succeeded or Failed
        self.members = MemberRules(self.breaks)
        self.resume = ResumeRules(self.breaks)
        self._unknown: set[str] = set()  # uids of Pods of whose end no controller could know when it decided S

    def worker_started(self, pod: KubeObject, epoch: int | None, played: PlayedRank | None = None) -> None:
        """Judge the start of a worker; `epoch` comes from its environment, None when that names none."""
        uid, name = pod["metadata"]["uid"], pod["metadata"]["name"]
        jobset, slot = jobset_of(pod), slot_of(pod)
        epoch = self._epochs.get(uid, 0) if epoch is None else epoch
        history = self.histories[jobset]
        self.trace.add("worker", f"{name} starts in epoch {epoch}")
        if history.at_work.keys() - {epoch} and (other := self._runs_elsewhere(jobset, epoch)) is not None:
            self.breaks(S1, f"{name} starts in epoch {epoch} while {other.pod} runs in {other.epoch}")
        if not {uid, history.started.get((slot, epoch), uid)} & self._unknown and (slot, epoch) in history.started:
            self.breaks(S2, f"{name} starts again in epoch {epoch}")
        if epoch > history.synced or epoch == 0:
            self.breaks(S3, f"{name} starts in epoch {epoch} while S is {history.synced}")
        self.members.started(jobset, name, slot, epoch, played)
        history.started[slot, epoch] = uid
        history.at_work[epoch] = history.at_work.get(epoch, 0) + 1
        self.running[uid] = Running(jobset, slot, name, epoch)

    def _runs_elsewhere(self, jobset: str, epoch: int) -> Running | None:
        """Return a worker of another epoch; a worker whose Pod was deleted by force does not count (docs/adr/0006)."""
        running = ((uid, r) for uid, r in self.running.items() if r.jobset == jobset and r.epoch != epoch)
        return next((r for uid, r in running if uid not in self._vanished), None)

    def worker_stopped(self, pod: KubeObject) -> None:
        """Note that no process of a worker is left."""
        self.trace.add("worker", f"{pod['metadata']['name']} ends")
        ended = self.running.pop(pod["metadata"]["uid"])
        at_work = self.histories[ended.jobset].at_work
        at_work[ended.epoch] -= 1
        if not at_work[ended.epoch]:
            del at_work[ended.epoch]

    def worker_hung(self, pod: KubeObject) -> None:
        """Note a hang: a cause for a restart, in its own epoch alone."""
        self.trace.add("worker", f"{pod['metadata']['name']} hangs")
        running = self.running[pod["metadata"]["uid"]]
        history = self.histories[running.jobset]
        history.hung.add(running.epoch)
        history.causes += 1

    def worker_dying(self, pod: KubeObject) -> None:
        """Note that only leftovers of a worker run on: it is silent, and its agent may not know why."""
        uid = pod["metadata"]["uid"]
        running = self.running[uid]
        self.histories[running.jobset].dying.add((uid, running.epoch))

    def is_lease_tampered(self) -> bool:
        """Return whether a person wrote the Lease so recently that its holder may not know yet."""
        return asyncio.get_running_loop().time() - self._lease_tampered_s < TAMPERED_S

    def note_cause(self, count: int = 1, *, free: bool = False) -> None:
        """Count events that may end an epoch of any JobSet; with `free` they use up no restart."""
        for history in self.histories.values():
            history.causes += count
            history.free += count if free else 0

    def note_cause_of(self, pod: KubeObject, count: int = 1) -> None:
        """Count what may end an epoch of a Pod's JobSet, unless the Pod is a spare."""
        jobset = jobset_of(pod)
        history = self.histories[jobset]
        history.note_cause(slot_of(pod), self.members.of(jobset, history.synced), count)

    def note_pods_listed(self) -> None:
        """Note that a controller listed the Pods: it cannot know of Pods that vanished before."""
        self._unknown |= self._vanished

    def note_synced_sent(self, jobset: str, synced: int, heard: int) -> None:
        """Note that a controller decided S, and sends it.

        It cannot know of Pods that end before it is stored, nor of ends beyond the revision `heard`, the newest that
        its list and its watch of Pods have brought it.
        """
        self._unknown |= {uid for uid, revision in self._ended.items() if revision > heard}
        for uid, obj in self._jobsets.items():
            if obj["metadata"]["name"] == jobset:
                self.histories[uid].sending = max(synced, self.histories[uid].sending)

    def observe(self, plural: str, event: Event) -> None:
        """Judge a write; the store calls this inside the write."""
        process = current_process()
        by = process.name if process is not None else "-"
        obj, meta = event.obj, event.obj["metadata"]
        self.trace.add("write", f"{event.type} {plural}/{meta['name']} rv {event.revision} by {by}")
        match plural:
            case "jobsets":
                self._observe_jobset(event.type, obj)
            case "jobs":
                self._observe_job(event, by)
            case "pods":
                self._observe_pod(event, by)
            case "nodes":
                self.members.note_node(obj)
            case "leases" if not by.startswith("controller-"):
                self._lease_tampered_s = asyncio.get_running_loop().time()

    def _observe_jobset(self, event_type: str, obj: KubeObject) -> None:
        uid = obj["metadata"]["uid"]
        before = self._jobsets.get(uid)
        self._jobsets[uid] = obj
        history = self.histories[uid]
        if event_type == "DELETED":
            return
        if before is not None and before["spec"] != obj["spec"]:
            self.note_cause(2 * self._slot_count(before) + self._slot_count(obj), free=True)  # a resize, a suspend, ...
        if history.ended is None and (obj.get("status") or {}).get("terminalState"):
            history.ended = obj
        synced, deprecated = wire.epochs_as_written(own_status(obj))
        if synced < history.synced or deprecated < history.deprecated or deprecated > synced:
            was = f"S={history.synced} D={history.deprecated}"
            self.breaks(S4, f"{was} became S={synced} D={deprecated}")
        history.grown += synced > history.synced
        self.members.observe(obj, (history.synced, history.deprecated), (synced, deprecated), exact=self.clocks_agree)
        self.resume.observe(obj, synced)
        if synced > history.synced and synced == deprecated:
            history.free += 1  # skipped: no worker starts in it, and the restart goes on
            history.causes += own_status(obj).get(wire.MEMBERS_FIELD) is not None  # by a controller that is new
        elif synced > history.synced:
            self._judge_sync(obj, history, synced)
        history.synced, history.deprecated = max(synced, history.synced), max(deprecated, history.deprecated)

    def _judge_sync(self, jobset: KubeObject, history: History, synced: int) -> None:
        loop = own_status(jobset).get(wire.CRASH_LOOP) or {}
        left_s = (unix_time(loop.get("until")) or 0.0) - VIRTUAL_EPOCH_S - asyncio.get_running_loop().time()
        if loop.get("epoch") == synced and self.clocks_agree and left_s > CLOCK_TOLERANCE_S:
            self.breaks(S11, f"epoch {synced} began {left_s:.3f} s too early")
        uses = (jobset.get("status") or {}).get(wire.ESCALATION_USES) or ()
        leaving = {use["podUid"] for use in uses if _is_of(use, synced)}
        if live := [uid for uid in leaving if uid in self._pods and uid not in self._ended]:
            self.breaks(S12, f"S became {synced} with {self._pods[live[0]]['metadata']['name']}")
        members = self.members.of(jobset["metadata"]["uid"], synced)
        slots = list(slots_of(jobset)) if members is None else self.members.slots(jobset, members)
        history.causes += sum(count for slot, count in history.idle.items() if slot in slots)
        history.idle.clear()
        if self.members.has_exchanged(jobset, synced):
            history.causes, history.free = history.causes + 1, history.free + 1
        # Nobody can tell a forged announcement of the next epoch from an agent's: docs/adr/0007.
        absent = [
            slot
            for slot in slots
            if history.announced.get(slot, 0) < synced and (slot, str(synced)) not in history.forged
        ]
        if absent:
            self.breaks(S3, f"S became {synced} although {absent} had announced less")
        ended = min(synced, history.grown) - 1
        restarts, allowed = ended - history.free, jobset["spec"]["failurePolicy"]["maxRestarts"]
        if restarts > allowed:
            self.breaks(S6, f"S became {synced}: at least {restarts} counted restarts, maxRestarts is {allowed}")
        if ended > history.causes:
            self.breaks(S7, f"S became {synced} after {history.causes} causes")

    def _observe_job(self, event: Event, by: str) -> None:
        obj, uid = event.obj, event.obj["metadata"]["uid"]
        going = event.type == "DELETED" or "deletionTimestamp" in obj["metadata"]
        if going and uid in self._jobs and by.startswith("controller"):
            self._judge_deletion(self._jobs[uid])
        if event.type == "DELETED":
            self._jobs.pop(uid, None)
        elif not going or uid in self._jobs:
            self._jobs[uid] = obj

    def _judge_deletion(self, job: KubeObject) -> None:
        """Judge a controller's deletion of a Job: allowed if a Pod of it ended, or if the JobSet does not want it."""
        if "deletionTimestamp" in job["metadata"]:
            return
        owner = next((o for o in job["metadata"].get("ownerReferences") or () if o["kind"] == wire.KIND), None)
        jobset = self._jobsets.get(owner["uid"]) if owner else None
        if jobset is None or "deletionTimestamp" in jobset["metadata"]:
            return
        status = jobset.get("status") or {}
        name = job["metadata"]["name"]
        wanted = {slot[0] for slot in slots_of(jobset)}
        if jobset["spec"].get("suspend") or status.get("terminalState") or name not in wanted:
            return
        uid = job["metadata"]["uid"]
        ended = [p for p in self._pods.values() if _controller_of(p) == uid and _phase(p) in ("Succeeded", "Failed")]
        told = job.get("status") or {}  # the status still counts a completed Pod whose object is gone
        if not ended and not told.get("succeeded") and not told.get("conditions"):
            self.breaks(S5, f"Job {name} was deleted although none of its Pods had ended")
        self.histories[jobset["metadata"]["uid"]].free += 1

    def _observe_pod(self, event: Event, by: str) -> None:
        obj, meta = event.obj, event.obj["metadata"]
        uid = meta["uid"]
        ended = event.type == "DELETED" or "deletionTimestamp" in meta or _phase(obj) in ("Succeeded", "Failed")
        if ended and uid not in self._ended:
            self._ended[uid] = event.revision
            history = self.histories[jobset_of(obj)]
            self.note_cause_of(obj)
            history.free += _is_disrupted(obj)
            if history.sending > history.synced:
                self._unknown.add(uid)
        before = self._pods.get(uid)
        if event.type == "DELETED":
            self._pods.pop(uid, None)
            if _phase(obj) not in ("Succeeded", "Failed"):
                self._vanished.add(uid)
        else:
            self._pods[uid] = obj
        history, text = self.histories[jobset_of(obj)], _epoch_text(obj)
        if by.startswith("agent/"):
            if not self._judge_telling(history, meta):  # it announced, maybe what a user had written already
                slot, self._epochs[uid] = slot_of(obj), int(text)
                history.announced[slot] = max(int(text), history.announced.get(slot, 0))
                self.members.note_announced(jobset_of(obj), slot, int(text))
        elif before is not None and text != _epoch_text(before):
            history.forged.add((slot_of(obj), text))

    def _judge_telling(self, history: History, meta: KubeObject) -> bool:
        """Judge what an agent told of its worker, and return whether it did: only of a hang may it tell of one.

        A worker that ended is silent as well; its agent may tell of that until it hears of the end.
        """
        if self._is_told_anew(meta, wire.NOTICE):
            return True
        if not self._is_told_anew(meta, wire.WORKER_FAILED):
            return False
        text = meta["annotations"][wire.WORKER_FAILED]
        failure = parse_failure(text)
        is_silent = failure.epoch in history.hung or (meta["uid"], failure.epoch) in history.dying
        if failure.stalled_s is not None and not is_silent:
            self.breaks(S10, f"{meta['name']}: {text}")
        return True

    def _is_told_anew(self, meta: KubeObject, annotation: str) -> bool:
        text, key = (meta.get("annotations") or {}).get(annotation), (meta["uid"], annotation)
        if text is None or text == self._told.get(key):
            return False
        self._told[key] = text
        return True

    def _slot_count(self, jobset: KubeObject) -> int:
        return sum(1 for _ in slots_of(jobset))

    def breaks(self, rule: str, what: str) -> None:
        """Record a violation; only the first one is kept."""
        self.trace.add("BROKEN", f"{rule}: {what}")
        if self.violation is None:
            self.violation = ViolationError(rule, what)


def _is_of(use: KubeObject, epoch: int) -> bool:
    """Return whether a use of an escalation step replaces a Pod in the restart to an epoch."""
    return use.get("epoch") == epoch and bool(use.get("podUid"))


def _is_disrupted(pod: KubeObject) -> bool:
    """Say whether Kubernetes marked the Pod: it is evicted, or its node is gone."""
    return any(one["type"] == "DisruptionTarget" for one in pod.get("status", {}).get("conditions") or ())


def _epoch_text(pod: KubeObject) -> str:
    return str((pod["metadata"].get("annotations") or {}).get(wire.EPOCH, "0"))


def _controller_of(pod: KubeObject) -> str:
    return next((str(o["uid"]) for o in pod["metadata"].get("ownerReferences") or () if o.get("controller")), "")


def _phase(pod: KubeObject) -> str:
    return str((pod.get("status") or {}).get("phase", ""))
