"""
One leadership: its caches, ledgers, queue and workers.

Work begins when all caches are full.
"""

from __future__ import annotations

import asyncio
import traceback
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from operator import itemgetter
from random import Random
from typing import Any

from anyio import create_task_group

from inplace.common.jobset.evictions import EVICTION_CODEC, EvictionObject
from inplace.common.jobset.kinds import (
    CLAIM_CODEC,
    JOB_CODEC,
    NAMESPACE_CODEC,
    NODE_CODEC,
    POD_CODEC,
    Job,
    Namespace,
    Node,
    PersistentVolumeClaim,
    Pod,
)
from inplace.common.jobset.node_taints import NodeTaint, is_bad_elsewhere, is_wanted
from inplace.common.jobset.pod_groups import SCHEDULING_CODEC, SchedulingObject
from inplace.common.jobset.service import SERVICE_CODEC, Service
from inplace.common.jobset.stored import JOBSET_CODEC
from inplace.common.kube.client import KubeClient
from inplace.common.kube.clock import Clock
from inplace.common.kube.codec import Codec
from inplace.common.kube.errors import ApiError, Conflict
from inplace.common.kube.http.request import TransportError
from inplace.common.kube.informer import Handler, Informer, Log, T
from inplace.common.kube.resources import (
    EVICTIONS,
    JOBS,
    JOBSETS,
    NAMESPACES,
    NODES,
    PERSISTENT_VOLUME_CLAIMS,
    PODS,
    SERVICES,
    KubeObject,
    Resource,
)
from inplace.common.kube.timestamps import time_text
from inplace.common.kube.workqueue import WorkQueue
from inplace.common.protocol.errors import InvariantError
from inplace.common.wire import names as wire
from inplace.controller.act.agent_rights import AgentRights
from inplace.controller.act.execute import Executor, Place
from inplace.controller.act.node_tainting import NodeTaints
from inplace.controller.act.reconcile import Reconciler
from inplace.controller.act.refusals import ActionsFailedError, Refusals, least_wait_s
from inplace.controller.act.refused_pods import RefusedPods
from inplace.controller.api.domains import Domains
from inplace.controller.api.events import EventRecorder
from inplace.controller.api.evictions import EvictionReader
from inplace.controller.api.node_marks import NodeMarksReader
from inplace.controller.api.scheduling_objects import SchedulingReader
from inplace.controller.config import ControllerConfig
from inplace.controller.metrics import CONTROLLER, LiveCollector, Metrics
from inplace.controller.tracking.gathering import Gathering
from inplace.controller.tracking.group import Key
from inplace.controller.tracking.membership import Membership
from inplace.controller.tracking.phases import PhaseReader
from inplace.controller.tracking.tellers import NoticeTeller, RestartTimer

RESYNC_S = 600.0  # how often every JobSet is looked at without being asked
URGENT_WORKERS = 1  # beside the ordinary ones, which take the urgent first as well; a pass of it is one status write


class Term:
    """One leadership."""

    def __init__(
        self,
        client: KubeClient,
        config: ControllerConfig,
        *,
        place: Place,
        clock: Clock,
        rng: Random,
        log: Log,
        metrics: Metrics,
    ) -> None:
        self.finished = asyncio.Event()
        self._client = client
        self._config = config
        self._clock = clock
        self._rng = rng
        self._log = log
        self._metrics = metrics
        self._active = metrics.active_workers.labels(CONTROLLER)
        self._seconds = metrics.reconcile_seconds.labels(CONTROLLER)
        self.queue: WorkQueue[Key] = WorkQueue(
            clock, metrics=metrics.queue, namespace_of=itemgetter(0), is_urgent=self._is_urgent
        )
        self.recorder = EventRecorder(client, clock=clock, rng=rng, log=log, instance=config.identity)
        self.membership = membership = Membership(self.queue.add_after, self.recorder.emit, clock, log)
        phases = PhaseReader(metrics, membership.home_of)
        self.jobsets: Informer[KubeObject] = self._informer(
            JOBSETS,
            JOBSET_CODEC,
            membership.jobset_changed,
            resync_s=RESYNC_S,
            keep=given_to_us if config.is_beside else None,
        )
        self.jobs: Informer[Job] = self._informer(JOBS, JOB_CODEC, membership.job_changed)
        self.services: Informer[Service] = self._informer(SERVICES, SERVICE_CODEC, membership.users.service_changed)
        self.claims: Informer[PersistentVolumeClaim] = self._informer(
            PERSISTENT_VOLUME_CLAIMS, CLAIM_CODEC, membership.users.claim_changed
        )
        self.pods: Informer[Pod] = self._informer(
            PODS,
            POD_CODEC,
            membership.pod_changed,
            phases.pod_changed,  # AFTER the membership has said which ledger counts the Pod
            label_selector=wire.JOBSET_NAME,
            gathering=membership.gathering,
            on_list=membership.pods_listed,
        )
        # In the order of their first lists: a status is never newer than the Pods by which it is judged, and a Pod
        # finds its Job.
        self._informers: tuple[Informer[Any], ...] = (self.jobsets, self.jobs, self.services, self.claims, self.pods)
        settings = config.job_settings
        if config.watches_namespaces:
            asking: Informer[Namespace] = self._informer(
                NAMESPACES, NAMESPACE_CODEC, label_selector=f"{wire.AGENT}={wire.AGENT_ON}"
            )
            settings = replace(settings, is_asked_in=lambda name: asking.get("", name) is not None)
            self._informers = (asking, *self._informers)
        self._marks = NodeMarksReader(
            client, membership, self.pods, self.recorder, clock, log, metrics, config.taint_limits is not None
        )
        nodes: Informer[Node] = self._informer(
            NODES, NODE_CODEC, self._marks.node_changed, field_selector="spec.unschedulable=true"
        )
        self._cordoned = None if config.namespace else nodes  # rights in one namespace are none for nodes
        self._taints = NodeTaints(
            client, config.taint_limits, self._is_bad_elsewhere, self.recorder, config.namespace, clock, log
        )
        self._scheduling = SchedulingReader(client, membership, self._scheduling_informer, clock, log)
        self._evictions = EvictionReader(client, membership, self.pods, self._eviction_informer, clock, log)
        self._reconciler = Reconciler(
            client=client,
            membership=membership,
            jobsets=self.jobsets,
            services=self.services,
            claims=self.claims,
            pods=self.pods,
            domains=Domains(client),
            marks=self._marks,
            evictions=self._evictions,
            scheduling=self._scheduling,
            taints=self._taints,
            only_writes=self._free_worker,
            executor=Executor(
                client,
                self.jobs,
                self.services,
                self.claims,
                self.pods,
                self.recorder,
                Refusals(clock),
                clock,
                log,
                settings,
                AgentRights(client),
                self._scheduling,
                place,
                lambda: len(self.queue) > 0,
            ),
            recorder=self.recorder,
            metrics=metrics,
            clock=clock,
            readers=(
                self.recorder.emit_notes,
                metrics.count_status,
                RestartTimer(self.recorder.emit, metrics, log).note_status,
                NoticeTeller(self.recorder.emit, metrics, log).note_status,
            ),
            refused_pods=RefusedPods(client, membership, self.recorder, settings, clock, log),
            settings=settings,
        )

    @property
    def has_synced(self) -> bool:
        """Say whether every cache is full."""
        return all(informer.has_synced for informer in self._informers)

    def shut_down(self) -> None:
        """Take no new work; `run` returns when what is in work has finished."""
        self.queue.shut_down()

    async def run(self) -> None:
        """Fill the caches, then reconcile until shut down."""
        live = LiveCollector(self.membership.counts, lambda: self.queue.processing().values(), self._silences)
        self._metrics.registry.register(live)
        self._metrics.workers_max.labels(CONTROLLER).set(self._config.workers + URGENT_WORKERS)
        try:
            async with create_task_group() as group:
                group.start_soon(self.recorder.run, name="events")
                group.start_soon(self._marks.run, name="marks")
                group.start_soon(self._scheduling.run, name="scheduling objects")
                group.start_soon(self._evictions.run, name="evictions")
                for informer in self._informers:
                    group.start_soon(informer.run, name=informer.resource.plural)
                    await informer.wait_synced()
                if self._cordoned is not None:  # nobody waits for its first list: it only tells of planned moves sooner
                    group.start_soon(self._cordoned.run, name="cordoned nodes")
                if self._config.on_cluster or self._config.taint_limits is not None:
                    group.start_soon(partial(self._taints.run, self._is_taint_wanted), name="taints")
                self._log.info("controller_started", jobsets=len(self.jobsets), pods=len(self.pods))
                await self.queue.work(self._process, workers=self._config.workers, reserved=URGENT_WORKERS)
                group.cancel_scope.cancel()
        finally:
            self.finished.set()
            self._metrics.registry.unregister(live)

    async def _process(self, key: Key) -> None:
        """Reconcile one JobSet; what its errors mean is decided here, and none concerns another JobSet."""
        metrics, started_s = self._metrics, self._clock.monotonic_s()
        self._active.inc()
        result = "error"
        try:
            result = await self._reconcile(key)
        finally:
            self._free_worker(key)
            self._seconds.observe(self._clock.monotonic_s() - started_s)
            metrics.reconciles.labels(CONTROLLER, result).inc()
            if result == "error":
                metrics.reconcile_errors.labels(CONTROLLER).inc()

    async def _reconcile(self, key: Key) -> str:
        """Reconcile, and queue the key again as the outcome asks; return controller-runtime's word for it."""
        namespace, name = key
        try:
            requeue_after_s = await self._reconciler.reconcile(key)
        except Conflict:  # another client wrote in between; that is normal, so it is not logged
            self.queue.add_rate_limited(key)
            return "requeue"
        except (ApiError, TransportError, ActionsFailedError) as error:
            floor_s = least_wait_s(error)
            self._log.warning("pass_failed", namespace=namespace, jobset=name, message=str(error))
            self.queue.add_rate_limited(key, floor_s)
            return "error"
        except (AssertionError, InvariantError):
            raise
        except Exception as error:  # noqa: BLE001 - what surprises us in one JobSet must not stop the others
            trace = traceback.format_exc()
            self._log.error("bug", namespace=namespace, jobset=name, message=repr(error), trace=trace)
            self.queue.add_rate_limited(key)
            return "error"
        self.queue.forget(key)
        if requeue_after_s is None:
            return "success"
        self.queue.add_after(key, requeue_after_s)
        return "requeue_after"

    def _free_worker(self, key: Key) -> None:
        if self.queue.free_worker(key):
            self._active.dec()

    def _is_taint_wanted(self, node: str, taint: NodeTaint) -> bool:
        group = self.membership.get((taint.namespace, taint.jobset))
        jobset = group.jobset if group is not None else None
        return is_wanted(self._taints.limits, node, taint, jobset, time_text(self._clock))

    def _is_bad_elsewhere(self, node: str, namespace: str) -> bool:
        jobsets = (group.jobset for group in self.membership)
        return is_bad_elsewhere(node, namespace, jobsets, time_text(self._clock))

    def _is_urgent(self, key: Key) -> bool:
        """Say whether agents wait for this JobSet's status."""
        group = self.membership.get(key)
        return group is not None and group.is_due

    def _informer(
        self,
        resource: Resource,
        codec: Codec[T],
        *handlers: Handler[T],
        label_selector: str | None = None,
        field_selector: str | None = None,
        resync_s: float | None = None,
        keep: Callable[[T], bool] | None = None,
        gathering: Gathering | None = None,
        on_ending: Callable[[str], None] | None = None,
        on_list: Callable[[int], None] | None = None,
    ) -> Informer[T]:
        def count_ending(ending: str) -> None:
            self._metrics.watch_endings.labels(resource.kind, ending).inc()
            if on_ending is not None:
                on_ending(ending)

        return Informer(
            self._client,
            resource,
            codec,
            clock=self._clock,
            rng=self._rng,
            log=self._log,
            namespace=self._config.namespace,
            label_selector=label_selector,
            field_selector=field_selector,
            resync_s=resync_s,
            keep=keep,
            on_ending=count_ending,
            rest_s=(gathering or Gathering()).rest_s if self._config.on_cluster else None,
            on_list=on_list,
            handlers=handlers,
        )

    def _scheduling_informer(
        self, resource: Resource, handler: Handler[SchedulingObject], on_ending: Callable[[str], None]
    ) -> Informer[SchedulingObject]:
        return self._informer(resource, SCHEDULING_CODEC, handler, label_selector=wire.JOBSET_NAME, on_ending=on_ending)

    def _eviction_informer(
        self, resource: Resource, handler: Handler[EvictionObject], on_ending: Callable[[str], None]
    ) -> Informer[EvictionObject]:
        """Make an informer; of Evictions only those that we respond to, which Kubernetes labels."""
        ours = wire.EVICTION_RESPONDER if resource == EVICTIONS else None
        return self._informer(resource, EVICTION_CODEC, handler, label_selector=ours, on_ending=on_ending)

    def _silences(self) -> Iterable[tuple[str, float]]:
        for informer in (*self._informers, *self._scheduling.informers):
            if (silent_s := informer.silent_s) is not None:
                yield informer.resource.kind, silent_s


def given_to_us(jobset: KubeObject) -> bool:
    """Say whether a JobSet names us as its controller; spec.managedBy never changes."""
    return bool((jobset.get("spec") or {}).get("managedBy") == wire.MANAGED_BY_US)
