"""
The words of a story: what users, kubelets, agents, the scheduler and the API server do.

`pN` is the Pod of slot N as it is now, in the order of the Jobs; without Pods a word means all of them, and a Job's
name means its Pods. Nodes are any names that begin with a letter and end with a number. A block
without `wait` ends after a second, in which the controller works.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Coroutine
from contextlib import suppress
from copy import deepcopy
from datetime import datetime
from typing import Any, Final, TypeVar

from inplace.common.kube.errors import ApiError, NotFound
from inplace.common.kube.http.request import Request
from inplace.common.kube.resources import CUSTOM_RESOURCE_DEFINITIONS, JOBSETS, NODES, PODS, WORKLOADS, KubeObject
from inplace.common.kube.timestamps import precise_time
from inplace.common.protocol.members import Members
from inplace.common.protocol.resume import NOTHING, Saved
from inplace.common.wire import names as wire
from inplace.common.wire import unfit
from inplace.common.wire.last_line import last_line_text
from inplace.common.wire.members import Announced, announcement_text, read_members
from inplace.common.wire.notice import Notice, notice_text
from inplace.simulator.cluster.nodes import node
from tests.common.kube.answers import refusal
from tests.controller.crew import FAILED_CHECK, Crew
from tests.controller.manifests import changed, jobset, replicated_job
from tests.controller.queued import KUEUE, TOPOLOGY, admit, place
from tests.stories.scenes import Scene
from tests.stories.sight import Names, Sight, changes, look
from tests.transcript import Vocabulary

Word = TypeVar("Word", bound=Callable[..., Coroutine[Any, Any, None]])
START: Final = "2026-01-01T00:00:00Z"
POD: Final = "template.spec.template"  # of a replicatedJob
RACK: Final = "example.com/rack"
WAIT_S: Final = 1.0  # at the end of a block that does not wait
TRIES: Final = 100
SHORT_S: Final = 2.0  # longer waits are for virtual time alone
_VIRTUAL: set[str] = set()


def virtual(word: Word) -> Word:
    """Note that only virtual time has a word: it needs the embedded server's insides."""
    _VIRTUAL.add(word.__name__)
    return word


class StoryWorld(Vocabulary):
    """Plays one story; a method `do_<word>` each."""

    def __init__(self, scene: Scene) -> None:
        self._scene = scene
        self._names = Names(scene.suffix)
        self._sight: Sight = {}
        self._told = (self._names.jobs, self._names.events)
        self._manifest: KubeObject = {}
        self._crew = Crew(scene.admin, scene.namespace, "train")
        self._asked: list[Callable[[], list[str]]] = []
        self._has_waited = self._is_stored = False
        self._restarts: Counter[str] = Counter()  # by Pod
        self._ran: dict[str, int] = {}  # by Pod of a group with spares: the last epoch that it ran

    @staticmethod
    def is_virtual(line: str) -> bool:
        """Say whether a command line can be played under virtual time alone."""
        name, *words = line.split(" ")
        is_long = name == "wait" and float(words[0]) > SHORT_S
        return is_long or "do_" + name.replace("-", "_") in _VIRTUAL

    def command(self, line: str) -> Callable[[], Any]:
        """Return what a command line calls; a value of `set` may have spaces."""
        if line.startswith("set "):
            _, path, value = line.split(" ", 2)
            return lambda: self.do_set(path, value)
        return super().command(line)

    async def play(self, commands: tuple[str, ...]) -> None:
        """Play the commands of a block."""
        self._asked.clear()
        self._has_waited = False
        for line in commands:
            try:
                await self.command(line)()
            except Exception as error:
                error.add_note(f"at the command {line!r} of {commands}")
                raise
        if not self._has_waited:
            await self._scene.pause(WAIT_S)

    async def look(self) -> list[str]:
        """Return what has changed since the block before, and what was asked for."""
        await self._scene.collect()
        self._names.jobs, self._names.events = deepcopy(self._told)  # an answer that is waited for is looked at often
        self._now = await look(self._crew, self._names)
        return changes(self._sight, self._now) + [line for ask in self._asked for line in ask()]

    def turn(self) -> None:
        """Let the last look be that of the block before."""
        self._sight, self._told = self._now, (self._names.jobs, self._names.events)

    # The JobSet.

    async def do_jobset(
        self, jobs: str = "workers:1x3", restarts: str = "100", strategy: str = "", **keys: str
    ) -> None:
        """`jobset jobs=workers:2x3 restarts=5 nodes=2`: name:replicas x pods, maxRestarts, annotations; not stored yet.

        A key without a domain is ours. Restarts do not wait for a back-off unless the story says so.
        """
        made = []
        for one in jobs.split(","):
            name, _, size = one.partition(":")
            replicas, _, pods = size.partition("x")
            made.append(replicated_job(name, replicas=int(replicas), pods=int(pods)))
        policy = strategy or wire.IN_PLACE_RESTART
        hasty = {"failures": "backoff=0"} if policy == wire.IN_PLACE_RESTART else {}
        annotations = {_key(key): value for key, value in (hasty | keys).items() if value}
        self._manifest = jobset(
            jobs=made,
            restarts_max=int(restarts),
            annotations=annotations,
            namespace=self._scene.namespace,
            strategy=None if policy == "none" else policy,
        )

    @virtual
    async def do_queued(self, **keys: str) -> None:
        """`queued jobs=workers:1x1`: a JobSet whose Pods Kueue places, and which leaves one bad node."""
        await self.do_jobset(**{"jobs": "workers:1x3", "nodes": "1"} | keys)
        await self._scene.admin.create(CUSTOM_RESOURCE_DEFINITIONS, None, KUEUE)
        await self.do_set("pod.metadata.annotations", json.dumps(TOPOLOGY))
        await self.do_set("pod.spec.schedulingGates", '[{"name": "kueue.x-k8s.io/topology"}]')

    async def do_racks(self, **keys: str) -> None:
        """`racks nodes=1`: two Jobs of three Pods, each in a rack of its own; racks a, b, c with the nodes a0 to c4."""
        options = {"jobs": "workers:2x3", "restarts": "9", wire.EXCLUSIVE_TOPOLOGY: RACK}
        await self.do_jobset(**options | keys)
        for rack in "abc":
            await self.do_node(*(f"{rack}{index}" for index in range(5)), **{RACK: rack})

    async def do_set(self, path: str, value: str) -> None:
        """`set spec.suspend true`: a field of the JobSet, before or after it is stored; `pod.` is its Pods' template.

        `set p0.spec.tolerations [{"key": "broken"}]`: a field of a Pod; a list gets more entries.
        """
        owner, _, field = path.partition(".")
        if owner in self._known():
            await self._set_in_pod(owner, field, json.loads(value))
            return
        if path.startswith("pod."):
            path = f"spec.replicatedJobs.0.{POD}{path.removeprefix('pod')}"
        self._manifest = changed(self._manifest, path, json.loads(value))
        await self._store({path.removeprefix("spec."): None} if value == "null" else {})

    async def do_resize(self, replicated_job: str, pods: str) -> None:
        """`resize workers 2`: the number of Pods of each Job."""
        for job in self._manifest["spec"]["replicatedJobs"]:
            if job["name"] == replicated_job:
                job["template"]["spec"] |= {"parallelism": int(pods), "completions": int(pods)}
        await self._store({})

    async def do_submit(self) -> None:
        """`submit`: the JobSet is stored."""
        self._is_stored = True
        await self._scene.admin.create(JOBSETS, self._scene.namespace, self._manifest)
        spec = self._manifest["spec"]
        first = [job for job in spec["replicatedJobs"] if "dependsOn" not in job]
        if "startupPolicy" in spec and not spec.get("suspend"):
            first = first[:1]
        jobs = sum(job["replicas"] for job in first)
        for _ in range(TRIES):
            await self._scene.pause(1.0)
            if len(await self._crew.jobs()) >= jobs:
                return

    async def do_start(self, on: str = "") -> None:
        """`start on=a0,a1,a2`: stored, its Pods run in epoch 1, on these nodes, or on n0, n1 and so on."""
        await self.do_submit()
        await self.do_pods(on or ",".join(f"n{index}" for index in range(100)))
        await self.do_meet()

    async def do_annotate(self, *gone: str, **keys: str) -> None:
        """`annotate nodes=2`: write annotations of the JobSet. `annotate nodes`: remove one."""
        values: dict[str, str | None] = {_key(key): None for key in gone}
        values |= {_key(key): value for key, value in keys.items()}
        patch = {"metadata": {"annotations": values}}
        await self._scene.admin.patch(JOBSETS, self._scene.namespace, "train", patch)

    # Jobs and Pods.

    async def do_pods(self, on: str = "") -> None:
        """`pods on=c0,c1,c2`: deleted Pods end, Jobs make those that they lack; these nodes get them one by one."""
        await self._scene.pause(0.5)
        await self._scene.collect()
        there = set()
        for metadata in [pod["metadata"] for pod in await self._list(PODS)]:
            if "deletionTimestamp" in metadata:
                await self._crew.remove(metadata["name"])
            else:
                there.add(metadata["name"])
        self._crew.pods = {slot: pod for slot, pod in self._crew.pods.items() if pod in there}
        await self._scene.pause(0.5)
        await self._scene.collect()
        await self._crew.make_pods()
        new = [(slot, pod) for slot, pod in self._crew.pods.items() if pod not in self._names.pods]
        for slot, pod in new:
            self._names.add(slot, pod)
        await self._scene.pause(0.5)
        for (_, pod), name in zip(new, on.split(",") if on else (), strict=False):
            await self._run_on(pod, name)
            await self._scene.pause(0.2)

    async def do_replace(self, pod: str, beside: str = "", on: str = "") -> None:
        """`replace p0 on=n9`: kubelet ends the Pod, and its Job makes another one; `replace p0 beside`: it stays."""
        ((slot, old),) = self._slots((pod,))
        if not beside:
            with suppress(NotFound):  # `remove` took it away
                await self._crew.set_phase(old, "Failed")
        new = await self._crew.replace(*slot)
        self._names.add(slot, new)
        if on:
            await self._scene.pause(0.2)
            await self._run_on(new, on)

    async def do_remove(self, *names: str) -> None:
        """`remove p0`, `remove n1`: the Pod, or node, is gone at once; a slot is empty until `pods` or `replace`."""
        nodes = [name for name in names if not self._slots((name,))]
        for _, pod in [] if nodes else self._slots(names):
            await self._scene.admin.delete(PODS, self._scene.namespace, pod, grace_period_s=0)
        for name in nodes:
            await self._scene.admin.delete(NODES, None, name + self._scene.suffix)

    async def do_drain(self, *pods: str) -> None:
        """`drain p0`: the Pod is deleted with time to end."""
        for _, pod in self._slots(pods):
            await self._scene.admin.delete(PODS, self._scene.namespace, pod, grace_period_s=30)

    async def do_end(self, *pods: str, phase: str = "Failed") -> None:
        """`end p0 phase=Succeeded`: the Pod ends by itself."""
        for _, pod in self._slots(pods):
            await self._crew.set_phase(pod, phase)

    async def do_job(self, name: str, how: str, reason: str = "BackoffLimitExceeded", message: str = "") -> None:
        """`job train-workers-0 Failed reason=PodFailurePolicy`: the Job controller says so; or Complete, Suspended."""
        if how == "Suspended":
            entry = {"type": how, "status": "True", "lastTransitionTime": START, "lastProbeTime": START}
            await self._crew.set_job(name, active=0, ready=0, conditions=[entry])
        else:
            await self._crew.finish_job(name, how, reason=reason, message=message)

    async def do_report(self, name: str, **counts: str) -> None:
        """`report train-workers-0 active=2 ready=2`: numbers in a Job's status."""
        await self._crew.set_job(name, startTime=START, **{key: int(value) for key, value in counts.items()})

    # Agents and workers.

    async def do_meet(self, *pods: str) -> None:
        """`meet p0 p1`: the Pods announce the next epoch; their workers start once it begins."""
        epoch = (await self._synced()) + 1
        for number, (_, pod) in enumerate(self._slots(pods)):
            await self._crew.annotate(pod, self._announcement(pod, epoch))
            if number == 0:
                await self._scene.see()
        await self._scene.pause(0.01)
        await self._scene.see()
        await self._start_workers(epoch, pods)

    async def do_run(self, *pods: str) -> None:
        """`run p0`: the workers of the epoch start."""
        await self._scene.pause(0.05)
        await self._start_workers(await self._synced(), pods)

    async def do_announce(self, epoch: str, *pods: str, line: str = "", at: str = "", **told: str) -> None:
        """`announce 2 p0`: any epoch; `announce 2 p0 p1 step=30 quiet=1`: with what the agent knows of its worker.

        `announce 2 p0 plain=1`: by an agent that reads no members.

        `announce 2 p0 local=42.41 shared=40 unfit=42`: with the steps that the Pod can load, and one that it cannot.

        `announce 2 p0 code=1 line="ValueError: 7" at=3`: how its worker ended, its last line, and when.
        """
        plain = told.pop("plain", "")
        local, shared, unfit = (told.pop(name, "") for name in ("local", "shared", "unfit"))
        steps = tuple(int(step) for step in local.split(".") if step)
        saved = Saved(steps, int(shared) if shared else None, int(unfit) if unfit else None)
        phases = ",".join(["v1", "view=64", f"at={int(epoch) - 1}", *(f"{key}={value}" for key, value in told.items())])
        said = {wire.LAST_LINE: last_line_text(int(epoch) - 1, await self._moment_s(at), line)} if at else {}
        for _, name in self._slots(pods):
            announced = wire.epoch_annotations(int(epoch)) if plain else self._announcement(name, int(epoch), saved)
            await self._crew.annotate(name, announced | {wire.PHASES: phases} | said)
            await self._scene.see()

    async def do_fail(
        self, pod: str, code: str = "1", unhealthy: str = "", at: str = "", phase: str = "Running", **ended: str
    ) -> None:
        """`fail p0 code=137`: the worker dies. `fail p0 unhealthy=gpu-3`: and kubelet tells of a device.

        `fail p0 reason=OOMKilled message="out of memory" at=3`: with kubelet's words, in a second after the creation.
        `fail p0 code=0 phase=Succeeded`: it completes, and so does its Pod.
        """
        ((_, name),) = self._slots((pod,))
        device = [{"name": "nvidia.com/gpu", "resources": [{"resourceID": unhealthy, "health": "Unhealthy"}]}]
        more = {"allocatedResourcesStatus": device} if unhealthy else {}
        when = {"finishedAt": precise_time(await self._moment_s(at))} if at else {}
        state = {"exitCode": int(code)} | ended | when
        await self._crew.set_worker(name, run=max(1, await self._synced()), ended=state, container=more, phase=phase)
        await self._scene.see()

    @virtual
    async def do_restart(
        self, pod: str, code: str, container: str = "worker", reason: str = "RestartingAllContainers"
    ) -> None:
        """`restart p0 code=127 container=inplace-agent`: a container ends, and kubelet starts the Pod's again."""
        ((_, name),) = self._slots((pod,))
        count = self._restarts[name] = self._restarts[name] + 1
        last = {"terminated": {"exitCode": 137, "reason": reason}} if count > 1 else {}
        running: KubeObject = {"running": {}}
        ended: KubeObject = {"terminated": {"exitCode": int(code), "reason": "Error", "finishedAt": START}}
        for state in (ended, {"waiting": {"reason": reason}}, running):
            parts = {}
            for field, one in (("containerStatuses", "worker"), ("initContainerStatuses", "inplace-agent")):
                now = state if one == container else running
                parts[field] = [{"name": one, "restartCount": count - 1, "lastState": last, "state": now}]
            await self._crew.set_pod(name, phase="Running", **parts)
        await self._scene.pause(WAIT_S)

    async def do_block(
        self, *pods: str, image: str = "train:1", reason: str = "", message: str = "", container: str = "worker"
    ) -> None:
        """`block p0 reason=ErrImagePull image=agent:1`: kubelet cannot start a container. `block p0`: now it can."""
        state = {"waiting": {"reason": reason} | ({"message": message} if message else {})}
        status = {"name": container, "image": image, "imageID": "", "ready": False, "restartCount": 0, "state": state}
        shown: dict[str, list[KubeObject]] = {"containerStatuses": [], "initContainerStatuses": []}
        shown["containerStatuses" if container == "worker" else "initContainerStatuses"] = [status] if reason else []
        for _, name in self._slots(pods):
            await self._crew.set_pod(name, phase="Pending" if reason else "Running", **shown)

    async def do_fail_check(self, *pods: str, message: str = FAILED_CHECK) -> None:
        """`fail-check p0`: the check of the node fails before the worker starts."""
        for _, pod in self._slots(pods):
            ended = {"exitCode": unfit.CHECK_FAILED_EXIT_CODE, "message": message, "finishedAt": await self._began()}
            await self._crew.set_worker(pod, ended=ended, phase="Failed")

    async def do_tell(self, pod: str, epoch: str = "", at: str = "0", **ended: str) -> None:
        """`tell p0 code=1`, `tell p0 stalled=9 step=30`: the agent tells how its worker ended, or that it hangs."""
        ended_ms = f"{await self._moment_s(at) * 1000:.0f}"
        facts = {"epoch": epoch or str(await self._synced())} | ended | {"at": ended_ms}
        text = ",".join(["v1", *(f"{key}={value}" for key, value in facts.items())])
        await self.do_write(pod, **{wire.WORKER_FAILED: text})

    async def do_notice(
        self, pod: str, kind: str, value: str = "310", epoch: str = "1", step: str = "7", at: str = "0", rank: str = ""
    ) -> None:
        """`notice p0 slow`: the agent tells of a worker that runs: slow, steps, loss or busy; at a second."""
        told = Notice(int(epoch), kind, int(value), rank or "rank-3", int(step), await self._moment_s(at))
        await self.do_write(pod, **{wire.NOTICE: notice_text(told)})

    async def do_write(self, pod: str, *gone: str, **keys: str) -> None:
        """`write p0 inplace.dev/fenced-within=40`: any annotation of a Pod."""
        ((_, name),) = self._slots((pod,))
        await self._crew.annotate(name, {_key(key): value for key, value in keys.items()} | dict.fromkeys(gone))

    async def do_condition(
        self, pod: str, kind: str, status: str = "True", reason: str = "", message: str = ""
    ) -> None:
        """`condition p0 DisruptionTarget reason=PreemptionByScheduler message="no room"`: in a Pod's status."""
        ((_, name),) = self._slots((pod,))
        found = (await self._scene.admin.get(PODS, self._scene.namespace, name)).get("status", {}).get("conditions")
        entry = {"type": kind, "status": status, "reason": reason, "message": message}
        await self._crew.set_pod(name, conditions=[*(found or ()), {key: text for key, text in entry.items() if text}])

    @virtual
    async def do_kueue(self, **pins: str) -> None:
        """`kueue p0=n0 p1=n1`: Kueue admits the JobSet and pins its Pods, which run there; later `kueue p0=n9`."""
        if not await self._list(WORKLOADS):
            await admit(self._crew)
        known = {one["metadata"]["name"] for one in (await self._scene.admin.list(NODES))["items"]}
        for pod, name in pins.items():
            if name not in known:
                await self.do_node(name)
            ((slot, _),) = self._slots((pod,))
            await place(self._crew, slot[1], name)

    # Nodes.

    async def do_node(self, *names: str, **labels: str) -> None:
        """`node a0 a1 example.com/rack=a`: nodes with labels."""
        for name in names:
            made = node(name + self._scene.suffix, pods=100, now=START)
            made["metadata"]["labels"] |= labels
            await self._scene.admin.create(NODES, None, made)
        if self._scene.suffix:  # a real server taints a node until somebody has heard of its kubelet
            await self.do_uncordon(*names)

    async def do_cordon(self, *names: str) -> None:
        """`cordon n0`."""
        await self._mark(names, {"unschedulable": True})

    async def do_uncordon(self, *names: str) -> None:
        """`uncordon n0`: also without taints."""
        await self._mark(names, {"unschedulable": None, "taints": None})

    async def do_taint(self, *names: str, effect: str = "NoSchedule", key: str = "broken") -> None:
        """`taint n0 effect=NoExecute`."""
        await self._mark(names, {"taints": [{"key": key, "effect": effect}]})

    async def do_silence(self, *names: str) -> None:
        """`silence n0`: nobody hears of its kubelet."""
        status = {"conditions": [{"type": "Ready", "status": "Unknown"}]}
        for name in names:
            await self._scene.admin.patch(
                NODES, None, name + self._scene.suffix, {"status": status}, subresource="status"
            )

    # The controller and its server.

    @virtual
    async def do_controller(self, **options: str) -> None:
        """`controller taints=4,600`: it may taint 4 nodes for 600 s."""
        await self._scene.virtual().change_controller(**options)

    @virtual
    async def do_rest(self) -> None:
        """`rest`: the controller ends; `next-leader` begins another one."""
        await self._scene.virtual().rig.end_controllers()

    @virtual
    async def do_lose_status(self) -> None:
        """`lose-status`: as a restore from a backup without it."""
        await self._scene.virtual().rig.edit({"status": None}, 0.0, subresource="status")

    @virtual
    async def do_next_leader(self) -> None:
        """`next-leader`: the controller ends, and another one begins."""
        await self._scene.virtual().change_controller()

    @virtual
    async def do_refuse(self, method: str, part: str) -> None:
        """`refuse PATCH /pods/`: the controller's requests of a method for a path are forbidden; `allow` ends it."""
        self._scene.virtual().rig.fault = lambda request: (
            refusal(403, "Forbidden") if request.method == method and part in request.path else None
        )

    @virtual
    async def do_slow(self, method: str, part: str, seconds: str) -> None:
        """`slow GET /nodes/n0 0.9`: such a request takes its time."""

        def latency_s(request: Request) -> float:
            return float(seconds) if request.method == method and part in request.path else 0.0

        self._scene.virtual().rig.latency_s = latency_s

    @virtual
    async def do_allow(self) -> None:
        """`allow`: the server answers as ever."""
        rig = self._scene.virtual().rig
        rig.fault, rig.latency_s = lambda _: None, lambda _: 0.0

    async def do_wait(self, seconds: str) -> None:
        """`wait 0.2`: this block takes so long, instead of a second."""
        self._has_waited = True
        await self._scene.wait(float(seconds))

    @virtual
    async def do_budget(self) -> None:
        """`budget`: what the controller asked of the server since the last time."""
        self._asked.append(self._budget)

    @virtual
    async def do_metric(self, name: str, **labels: str) -> None:
        """`metric node_reads_total result=leaves`: a number that the controller tells of this JobSet, or of all.

        Upstream's metrics begin with jobset_.
        """
        full = name if name.startswith("jobset_") else f"inplace_{name}"
        of_jobset = {"namespace": "default", "jobset_name" if full == name else "jobset": "train"}
        rig = self._scene.virtual().rig

        def value() -> list[str]:
            found = rig.sample(full, -1, **labels) or rig.sample(full, -1, **of_jobset, **labels)
            return [f"metric {name}: {found:g}"]

        self._asked.append(value)

    # What the words need.

    def _budget(self) -> list[str]:
        requests = self._scene.virtual().rig.requests
        ends = [(one.method, one.path.partition("?")[0]) for one in requests]
        status = sum(method == "PATCH" and path.endswith("/jobsets/train/status") for method, path in ends)
        pods = sum(method == "PATCH" and "/pods/" in path for method, path in ends)
        nodes = Counter(path.rpartition("/")[2] for method, path in ends if method == "GET" and "/nodes/" in path)
        read = [name if count == 1 else f"{name}*{count}" for name, count in nodes.items()]
        single = sum("fieldSelector=metadata.name" in one.path for one in requests)
        requests.clear()
        writes = f"{status} status writes, {pods} Pod writes, {single} Pod reads"
        return [f"budget: {writes}, nodes read: {' '.join(read) or '-'}"]

    async def _store(self, gone: KubeObject) -> None:
        if self._is_stored:
            patch = {"spec": self._manifest["spec"] | gone}
            await self._scene.admin.patch(JOBSETS, self._scene.namespace, "train", patch)

    async def _start_workers(self, epoch: int, pods: tuple[str, ...]) -> None:
        members = await self._members()
        for (job, index), pod in self._slots(pods):
            unit = members.unit_of(int(job.rpartition("-")[2]), index) if members is not None else 0
            if members is not None and (members.skipped or members.rank_of(unit) is None):
                continue  # a spare
            self._ran[pod] = epoch
            with suppress(NotFound):  # the JobSet failed meanwhile
                await self._crew.set_worker(pod, run=epoch)

    def _announcement(self, pod: str, epoch: int, saved: Saved = NOTHING) -> dict[str, str]:
        """Return the annotations of an announcement, as an agent of this group writes them."""
        told = Announced(self._ran.get(pod, 0), saved)
        ran = {wire.RAN: announcement_text(epoch, told)} if self._has_spares or saved != NOTHING else {}
        return wire.epoch_annotations(epoch) | ran

    @property
    def _has_spares(self) -> bool:
        templates = [job["template"].get("metadata") or {} for job in self._manifest["spec"]["replicatedJobs"]]
        return any(wire.MEMBERS in (one.get("annotations") or {}) for one in (self._manifest["metadata"], *templates))

    async def _members(self) -> Members | None:
        """Return who plays in the epoch which runs; None where all do."""
        if not self._has_spares:
            return None
        scopes: list[KubeObject] = (await self._crew.status()).get(wire.SCOPED_EPOCHS) or [{}]
        (scope,) = scopes
        members = read_members(scope.get(wire.MEMBERS_FIELD))
        return members if members is not None else Members(0, 0)

    async def _began(self) -> str:
        created: str = (await self._crew.jobset())["metadata"]["creationTimestamp"]
        return created

    async def _moment_s(self, at: str) -> float:
        """Return the time so many seconds after the JobSet was created."""
        return datetime.fromisoformat(await self._began()).timestamp() + float(at)

    async def _synced(self) -> int:
        status = await self._crew.status()
        return max(wire.epochs_of_status(part)[0] for part in status.get(wire.SCOPED_EPOCHS) or (status,))

    def _slots(self, chosen: tuple[str, ...]) -> list[tuple[tuple[str, int], str]]:
        """Return the slots and Pods that these words mean."""
        slots = self._crew.pods
        if not chosen:
            return list(slots.items())
        known = self._known().items()
        return [(slot, slots[slot]) for one in chosen for name, slot in known if one in (name, slot[0])]

    def _known(self) -> dict[str, tuple[str, int]]:
        return {f"p{number}": slot for number, slot in enumerate(self._names.slots)}

    async def _set_in_pod(self, name: str, field: str, value: Any) -> None:
        ((_, pod),) = self._slots((name,))
        stored = await self._scene.admin.get(PODS, self._scene.namespace, pod)
        part, key = field.split(".")
        before = (stored.get(part) or {}).get(key) or []
        body = {part: {key: [*before, *value] if isinstance(value, list) else value}}
        subresource = "status" if part == "status" else None
        await self._scene.admin.patch(PODS, self._scene.namespace, pod, body, subresource=subresource)

    async def _run_on(self, pod: str, name: str) -> None:
        known = {one["metadata"]["name"] for one in (await self._scene.admin.list(NODES))["items"]}
        if name + self._scene.suffix not in known:
            await self.do_node(name)
        for _ in range(TRIES):
            with suppress(ApiError):  # its gates are not lifted yet
                await self._crew.bind(pod, name + self._scene.suffix)
                break
            await self._scene.pause(0.2)
        await self._crew.set_phase(pod, "Running")

    async def _mark(self, names: tuple[str, ...], spec: KubeObject) -> None:
        for name in names:
            await self._scene.admin.patch(NODES, None, name + self._scene.suffix, {"spec": spec})

    async def _list(self, resource: Any) -> list[KubeObject]:
        found: list[KubeObject] = (await self._scene.admin.list(resource, self._scene.namespace))["items"]
        return found


def _key(key: str) -> str:
    return key if "/" in key else f"inplace.dev/{key}"
