"""
Decide what a Job needs: Pods to create, Pods to delete, and its status.

Pure: `plan(job, pods, memory, now) -> JobPlan`. It keeps the built-in controller's order: count finished Pods, then
failure, success, suspension, and last the number of Pods.
Source: pkg/controller/job/job_controller.go v1.37 (syncJob, manageJob, trackJobStatusAndRemoveFinalizers).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from inplace.common.kube.resources import KubeObject
from inplace.simulator.apiserver.metadata import timestamp
from inplace.simulator.cluster.job_indexes import IndexFailures, compress, expand, failures_before, index_of
from inplace.simulator.cluster.job_pods import judge

CREATE_MAX = 500  # per sync; MaxPodCreateDeletePerSync


@dataclass(slots=True)
class JobMemory:
    """The controller's memory of a Job between syncs, beside the Job's status.

    Args:
        counted: uids of Pods that are in status.succeeded or status.failed already, or that shall never be there
            (`JobPlan.released`). The real controller keeps this in the Pods' finalizers.
        failures: failed Pods since the last success, for the back-off.
        index_failures: by index that is to be replaced; only with backoffLimitPerIndex.
    """

    counted: set[str] = field(default_factory=set)
    failures: int = 0
    last_failure_s: float = 0.0
    index_failures: dict[int, IndexFailures] = field(default_factory=dict)

    def copy(self) -> JobMemory:
        """Return a memory that changes by itself."""
        return replace(self, counted=set(self.counted), index_failures=dict(self.index_failures))


@dataclass(frozen=True, slots=True)
class JobPlan:
    """The changes that a Job needs.

    Args:
        create: completion indexes to create Pods for (None without an index).
        released: uids of those Pods in `delete` that lose the Job's finalizer BEFORE they are deleted. Their end is
            never counted, whatever it is.
        again_s: sync again after so many seconds; None when nothing waits for time.
        index_failures: by index in `create`, for the new Pod's annotations.
    """

    create: tuple[int | None, ...]
    delete: tuple[KubeObject, ...]
    status: KubeObject
    again_s: float | None = None
    released: frozenset[str] = frozenset()
    index_failures: Mapping[int, IndexFailures] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Backoff:
    """The wait before a failed Pod is replaced, in seconds."""

    first_s: float
    max_s: float

    def remaining_s(self, failures: int, last_failure_s: float, now_s: float) -> float:
        """Return how long no Pod may be created yet."""
        if failures == 0 or self.first_s == 0:
            return 0.0
        wait_s: float = min(self.max_s, self.first_s * 2.0 ** min(failures - 1, 20))
        return max(0.0, last_failure_s + wait_s - now_s)


def plan(job: KubeObject, pods: Sequence[KubeObject], memory: JobMemory, now_s: float, backoff: Backoff) -> JobPlan:
    """Return the changes that this Job needs now; updates `memory`."""
    return _Sync(job, pods, memory, now_s, backoff).run()


def finished(job: KubeObject) -> bool:
    """Return whether the Job is Complete or Failed."""
    conditions = (job.get("status") or {}).get("conditions") or ()
    return any(c["type"] in ("Complete", "Failed") and c["status"] == "True" for c in conditions)


class _Sync:
    """One pass over one Job."""

    def __init__(
        self, job: KubeObject, pods: Sequence[KubeObject], memory: JobMemory, now_s: float, backoff: Backoff
    ) -> None:
        self.spec: dict[str, Any] = job["spec"]
        self.status: dict[str, Any] = dict(job.get("status") or {})
        self.conditions: list[dict[str, Any]] = [dict(c) for c in self.status.get("conditions") or ()]
        self.indexed = self.spec.get("completionMode") == "Indexed"
        self.only_failed = self.spec.get("podReplacementPolicy") == "Failed"
        self.memory = memory
        self.now_s = now_s
        self.now = timestamp(now_s)
        self.backoff = backoff
        self.pods = pods
        self.active = [p for p in pods if not _ended(p) and not _terminating(p)]
        self.terminating = [p for p in pods if not _ended(p) and _terminating(p)]
        self.succeeded = expand(self.status.get("completedIndexes") or "")
        self.failed_indexes = {
            index for index in expand(self.status.get("failedIndexes") or "") if index < self.spec["completions"]
        }
        self.limit_per_index: int | None = self.spec.get("backoffLimitPerIndex") if self.indexed else None
        self.fail_message = ""

    def run(self) -> JobPlan:
        """Run the steps in the built-in controller's order."""
        if "startTime" not in self.status and not self.spec.get("suspend"):
            self.status["startTime"] = self.now
        self._count()
        create: list[int | None] = []
        delete: list[KubeObject] = []
        again_s: float | None = None
        self._judge()
        if self._is_true("FailureTarget"):
            delete = self.active
            self._count_the_rest()
        elif self._is_true("SuccessCriteriaMet"):
            delete = self.active
        elif self.spec.get("suspend"):
            delete = self.active
            if not self._is_true("Suspended"):
                self._set("Suspended", "True", "JobSuspended", "Job suspended")
                self.status.pop("startTime", None)
        else:
            if self._is_true("Suspended"):
                self._set("Suspended", "False", "JobResumed", "Job resumed")
                self.status["startTime"] = self.now
            create, delete, again_s = self._balance()
            again_s = min((one for one in (again_s, self._deadline_in_s()) if one is not None), default=None)
        is_failing = self._is_true("FailureTarget")  # then those that are deleted are counted already
        released = frozenset[str]() if is_failing else frozenset(p["metadata"]["uid"] for p in delete)
        self.memory.counted |= released
        self._finish(delete)
        failures = dict(self.memory.index_failures)
        return JobPlan(tuple(create), tuple(delete), self._report(delete), again_s, released, failures)

    def _count(self) -> None:
        """Count each ended Pod once."""
        for pod in self.pods:
            uid = pod["metadata"]["uid"]
            phase = pod.get("status", {}).get("phase")
            lost = _terminating(pod) and not self.only_failed and phase != "Succeeded"
            if uid in self.memory.counted or not (_ended(pod) or lost):
                continue
            self.memory.counted.add(uid)
            if phase == "Succeeded":
                self.memory.failures = 0
                index = index_of(pod)
                if self.indexed and (index is None or index >= self.spec["completions"]):
                    continue
                if self.indexed and index is not None:
                    self.succeeded.add(index)
                else:
                    self.status["succeeded"] = self.status.get("succeeded", 0) + 1
                continue
            action, message = judge(pod, self.spec.get("podFailurePolicy"))
            if action == "FailJob":
                self.fail_message = self.fail_message or message
            if self._waits_for_its_replacement(pod, action):
                continue
            if action != "Ignore":
                self._add_failed(1)
                self.memory.failures += 1
                self.memory.last_failure_s = self.now_s
        if self.limit_per_index is not None:
            self._count_replaced()
        if self.indexed:
            self.succeeded = {i for i in self.succeeded if i < self.spec["completions"]}
            self.status["succeeded"] = len(self.succeeded)
            self.status["completedIndexes"] = compress(self.succeeded)

    def _add_failed(self, count: int) -> None:
        self.status["failed"] = self.status.get("failed", 0) + count

    def _waits_for_its_replacement(self, pod: KubeObject, action: str) -> bool:
        """Take note of a failure of an index that has a back-off of its own; say whether it is counted later."""
        index = index_of(pod)
        if self.limit_per_index is None or index is None or index >= self.spec["completions"]:
            return False
        before, counts = failures_before(pod), action != "Ignore"
        if action == "FailIndex" or (counts and before.counted >= self.limit_per_index):
            self.failed_indexes.add(index)
        if index in self.failed_indexes or index in self.succeeded:
            return False
        self.memory.index_failures[index] = before.after(self.now_s, counts=counts)
        return True

    def _count_replaced(self) -> None:
        """Count the failures of indexes whose next Pod is there."""
        there = {index_of(pod) for pod in self.active} | self.succeeded | self.failed_indexes
        for index in [index for index in self.memory.index_failures if index in there]:
            self._add_failed(self.memory.index_failures.pop(index).is_last_counted)
        self.status["failedIndexes"] = compress(self.failed_indexes)

    def _count_the_rest(self) -> None:
        """Count as failed whatever has not ended when the Job fails, and what waits for its replacement."""
        for pod in (*self.active, *self.terminating):
            uid = pod["metadata"]["uid"]
            if uid not in self.memory.counted:
                self.memory.counted.add(uid)
                self._add_failed(judge(pod, self.spec.get("podFailurePolicy"))[0] != "Ignore")
        self._add_failed(sum(one.is_last_counted for one in self.memory.index_failures.values()))
        self.memory.index_failures.clear()

    def _judge(self) -> None:
        """Decide whether the Job has failed or succeeded."""
        if self._is_true("FailureTarget") or self._is_true("SuccessCriteriaMet"):
            return
        restarts = self._restarts_on_failure()
        backoff_limit = self.spec.get("backoffLimit", 6)
        waiting = sum(one.is_last_counted for one in self.memory.index_failures.values())
        too_many = self.status.get("failed", 0) + waiting > backoff_limit
        deadline_in_s = self._deadline_in_s()
        failed_max = self.spec.get("maxFailedIndexes")
        if restarts is not None:
            too_many = too_many or (restarts > 0 if backoff_limit == 0 else restarts >= backoff_limit)
        if self.fail_message:
            self._set("FailureTarget", "True", "PodFailurePolicy", self.fail_message)
        elif too_many:
            message = "Job has reached the specified backoff limit"
            self._set("FailureTarget", "True", "BackoffLimitExceeded", message)
        elif deadline_in_s is not None and deadline_in_s <= 0:
            self._set("FailureTarget", "True", "DeadlineExceeded", "Job was active longer than specified deadline")
        elif failed_max is not None and len(self.failed_indexes) > failed_max:
            message = "Job has exceeded the specified maximal number of failed indexes"
            self._set("FailureTarget", "True", "MaxFailedIndexesExceeded", message)
        elif self.failed_indexes and len(self.failed_indexes | self.succeeded) >= self.spec["completions"]:
            self._set("FailureTarget", "True", "FailedIndexes", "Job has failed indexes")
        elif self._is_complete():
            self._set("SuccessCriteriaMet", "True", "CompletionsReached", "Reached expected number of succeeded pods")

    def _deadline_in_s(self) -> float | None:
        """Return the seconds until the Job's deadline; None where it has none, or is suspended."""
        limit, started = self.spec.get("activeDeadlineSeconds"), self.status.get("startTime")
        if limit is None or started is None or self.spec.get("suspend"):
            return None
        return float(datetime.fromisoformat(started).timestamp() + limit - self.now_s)

    def _restarts_on_failure(self) -> int | None:
        """Return the sum of all container restarts; None unless the Pods restart on failure."""
        if self.spec["template"]["spec"].get("restartPolicy") != "OnFailure":
            return None
        statuses = [p.get("status") or {} for p in self.active]
        fields = ("initContainerStatuses", "containerStatuses")
        return sum(int(c.get("restartCount", 0)) for s in statuses for f in fields for c in s.get(f) or ())

    def _is_complete(self) -> bool:
        completions = self.spec.get("completions")
        succeeded = int(self.status.get("succeeded", 0))
        if completions is None:
            return succeeded > 0 and not self.active
        return bool(succeeded >= completions and not (completions == 0 and self.active))

    def _balance(self) -> tuple[list[int | None], list[KubeObject], float | None]:
        """Return indexes to create, Pods to delete, and when to look again."""
        wanted = self._wanted_active()
        surplus = self._surplus(wanted)
        kept = len(self.active) - len(surplus)
        blocking = len(self.terminating) if self.only_failed else 0
        missing = wanted - kept - blocking
        if missing <= 0:
            return [], surplus, None
        wait_s = self.backoff.remaining_s(self.memory.failures, self.memory.last_failure_s, self.now_s)
        if wait_s > 0 and self.limit_per_index is None:
            return [], surplus, wait_s
        if not self.indexed:
            return [None] * min(missing, CREATE_MAX), surplus, None
        gone = {p["metadata"]["uid"] for p in surplus}
        taken = {index_of(p) for p in self.active if p["metadata"]["uid"] not in gone} | self.succeeded
        if self.only_failed:
            taken |= {index_of(p) for p in self.terminating}
        taken |= self.failed_indexes
        free = [i for i in range(self.spec["completions"]) if i not in taken]
        chosen = {index: self._index_waits_s(index) for index in free[: min(missing, CREATE_MAX)]}
        create: list[int | None] = [index for index, left_s in chosen.items() if left_s == 0]
        return create, surplus, None if create else min(chosen.values(), default=None)

    def _index_waits_s(self, index: int) -> float:
        """Return how long an index waits for its next Pod; one without a failure does not wait."""
        failures = self.memory.index_failures.get(index, IndexFailures())
        return self.backoff.remaining_s(failures.counted + failures.ignored, failures.at_s, self.now_s)

    def _wanted_active(self) -> int:
        parallelism = int(self.spec.get("parallelism", 1))
        completions = self.spec.get("completions")
        if completions is None:
            return len(self.active) if self.status.get("succeeded", 0) > 0 else parallelism
        return max(0, min(parallelism, int(completions) - int(self.status.get("succeeded", 0))))

    def _surplus(self, wanted: int) -> list[KubeObject]:
        """Return the surplus active Pods: without a valid index, second at one index, or above the wanted number."""
        if not self.indexed:
            return self.active[wanted:]
        seen: set[int] = set()
        surplus = []
        placed = [(index_of(pod), pod) for pod in self.active]
        for index, pod in sorted(placed, key=lambda each: (each[0] is None, each[0], each[1]["metadata"]["name"])):
            if index is None or index >= self.spec["completions"] or index in seen or len(seen) >= wanted:
                surplus.append(pod)
            else:
                seen.add(index)
        return surplus

    def _finish(self, delete: Sequence[KubeObject]) -> None:
        """Add the terminal condition once no Pod is left running."""
        if delete or self.active or self.terminating:
            return
        if self._is_true("FailureTarget") and not self._is_true("Failed"):
            why = self._find("FailureTarget")
            self._set("Failed", "True", why["reason"], why["message"])
        elif self._is_true("SuccessCriteriaMet") and not self._is_true("Complete"):
            why = self._find("SuccessCriteriaMet")
            self._set("Complete", "True", why["reason"], why["message"])
            self.status["completionTime"] = self.now

    def _report(self, delete: Sequence[KubeObject]) -> KubeObject:
        gone = {p["metadata"]["uid"] for p in delete}
        left = [p for p in self.active if p["metadata"]["uid"] not in gone]
        self.status |= {
            "active": len(left),
            "ready": sum(map(_ready, left)),
            "terminating": len(self.terminating) + len(gone),
            "uncountedTerminatedPods": {},
        }
        if self.conditions:
            self.status["conditions"] = self.conditions
        return self.status

    def _find(self, kind: str) -> dict[str, Any]:
        return next((c for c in self.conditions if c["type"] == kind), {})

    def _is_true(self, kind: str) -> bool:
        return self._find(kind).get("status") == "True"

    def _set(self, kind: str, status: str, reason: str, message: str) -> None:
        fresh = {"type": kind, "status": status, "reason": reason, "message": message}
        old = self._find(kind)
        if old.get("status") == status:
            return
        self.conditions = [c for c in self.conditions if c["type"] != kind]
        self.conditions.append(fresh | {"lastProbeTime": self.now, "lastTransitionTime": self.now})


def _ended(pod: KubeObject) -> bool:
    return pod.get("status", {}).get("phase") in ("Succeeded", "Failed")


def _terminating(pod: KubeObject) -> bool:
    return "deletionTimestamp" in pod["metadata"]


def _ready(pod: KubeObject) -> bool:
    conditions = pod.get("status", {}).get("conditions") or ()
    return any(c["type"] == "Ready" and c["status"] == "True" for c in conditions)
