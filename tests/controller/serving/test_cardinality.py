"""How much the JobSets of one tenant can put into /metrics: a scrape that is too large ends the controller."""

from __future__ import annotations

from itertools import product
from typing import Final

import pytest

from inplace.common.jobset.bad_nodes import AVOIDED, TAKEN_BACK
from inplace.common.jobset.causes import Failure, Trigger
from inplace.common.jobset.escalation import FAIL
from inplace.common.jobset.fields import REPLICATED_JOBS_MAX
from inplace.common.jobset.settings import STEP_NAMES
from inplace.common.kube.resources import JOBSETS, KubeObject
from inplace.common.wire import names as wire
from inplace.common.wire.notice import KINDS
from inplace.controller.metrics import OUTCOMES, LiveCollector, Metrics
from inplace.controller.tracking.counts import SCOPES_SHOWN_MAX
from tests.controller.manifests import jobset, replicated_job
from tests.controller.objects import make_membership
from tests.controller.rig import running_rig

pytestmark = [pytest.mark.attack, pytest.mark.virtual_time]

SERIES_MAX: Final = 220  # of one JobSet, whatever it says; an ordinary one has some 16
LINE_BYTES_MAX: Final = 2_000  # names and reasons of the CRD's lengths, each character escaped
HOW_MANY: Final = 10
NAMESPACE: Final = "n" * 63


def hostile(name: str, scopes: int = REPLICATED_JOBS_MAX) -> KubeObject:
    """Return a JobSet of so many scopes with the longest names that the CRD takes and a value for every metric."""
    names = [f"{number:03}{'r' * 60}" for number in range(scopes)]
    costs = {"restarts": 1, "usefulMilliseconds": 60_000, "lostMilliseconds": 1, "restartMilliseconds": 1}
    costs["lostSteps"] = 1
    epochs = {wire.SYNCED_EPOCH: 2, wire.DEPRECATED_EPOCH: 1, "goodput": costs}
    failure = Failure('"' * 253, "\\" * 253, "c" * 63, 137, "\n" * 128)
    last = {"epoch": 2, "trigger": "stalled", "startedAt": "2026-01-01T00:00:00Z", "syncedAt": "2026-01-01T00:00:09Z"}
    silent = {"pods": ["p" * 253] * 16, "count": 16, "step": 1, "quietMilliseconds": 1}
    wanted = jobset(
        name,
        jobs=[replicated_job(job, pods=1) for job in names],
        namespace=NAMESPACE,
        annotations={wire.RESTART_SCOPE: "ReplicatedJob"},
    )
    wanted["metadata"] |= {"uid": name, "resourceVersion": "1"}
    wanted["status"] = {
        wire.RESTART_SCOPE_FIELD: "ReplicatedJob",
        wire.SCOPED_EPOCHS: [{"name": job} | epochs for job in names],
        wire.LAST_GROUP_RESTART: last | {"firstFailure": failure.fields(), "firstSilent": silent},
    }
    return wanted


def count_everything(metrics: Metrics, name: str) -> None:
    """Count each event that a JobSet can have."""
    for outcome, trigger in product(OUTCOMES, Trigger):
        metrics.restarts.labels(NAMESPACE, name, outcome, trigger.value).inc()
    for verdict in (AVOIDED, TAKEN_BACK):
        metrics.node_verdicts.labels(NAMESPACE, name, verdict).inc()
    for kind in KINDS:
        metrics.notices.labels(NAMESPACE, name, kind).inc()
    for step in (*STEP_NAMES, FAIL):
        metrics.escalation_steps.labels(NAMESPACE, name, step).inc()
    for metric in (metrics.lost_pod_seconds, metrics.deadlines, metrics.barrier_recreations):
        metric.labels(NAMESPACE, name).inc()
    metrics.last_restart_seconds.labels(NAMESPACE, name).set(9.0)
    for metric in (metrics.failed, metrics.completed, metrics.deadline_exceeded):
        metric.labels(name, NAMESPACE).inc()


async def test_a_jobset_has_a_bounded_number_of_series() -> None:
    """With 100 scopes of the longest names and every event counted; all of it goes with the JobSet."""
    metrics, membership = Metrics(), make_membership()
    metrics.registry.register(LiveCollector(membership.counts, list, list))
    metrics.registry.unregister(metrics.process)  # the numbers of this process change
    empty = metrics.text()
    known = [hostile(f"{number:02}{'j' * 50}") for number in range(HOW_MANY)]
    for each in known:
        membership.jobset_changed(None, each)
        count_everything(metrics, each["metadata"]["name"])
    lines = [line for line in metrics.text().splitlines() if NAMESPACE.encode() in line]
    assert len(lines) <= SERIES_MAX * HOW_MANY
    assert max(map(len, lines)) <= LINE_BYTES_MAX
    for each in known:
        membership.jobset_changed(each, None)
        metrics.forget(NAMESPACE, each["metadata"]["name"])
    assert metrics.text() == empty


@pytest.mark.parametrize(("scopes", "shown"), [(1, 1), (SCOPES_SHOWN_MAX, SCOPES_SHOWN_MAX), (SCOPES_SHOWN_MAX + 1, 1)])
async def test_many_scopes_are_shown_together(scopes: int, shown: int) -> None:
    """Their Pods and costs are summed; the epoch is 1 more than all restarts, and a restart of one is in progress."""
    metrics, membership = Metrics(), make_membership()
    metrics.registry.register(LiveCollector(membership.counts, list, list))
    wanted = hostile("train", scopes)
    wanted["status"][wire.SCOPED_EPOCHS][-1][wire.DEPRECATED_EPOCH] = 2
    membership.jobset_changed(None, wanted)

    def values(name: str, **labels: str) -> list[float]:
        found = [sample for family in metrics.registry.collect() for sample in family.samples if sample.name == name]
        return [sample.value for sample in found if labels.items() <= sample.labels.items()]

    assert len(values("inplace_pods_expected")) == shown
    assert sum(values("inplace_pods_expected")) == scopes
    assert sum(values("inplace_pods", state="missing")) == scopes
    assert sum(values("inplace_goodput_seconds", part="useful")) == 60 * scopes
    assert sum(value - 1 for value in values("inplace_epoch", which="synced")) == scopes
    assert max(values("inplace_restart_in_progress")) == 1


async def test_a_jobset_that_goes_at_any_moment_leaves_no_series() -> None:
    """Deleted while its restart begins, is under way, ends, or is counted: nothing is counted for it afterwards."""
    async with running_rig() as rig:
        for number, delay_s in enumerate((0.0, 0.001, 0.01, 0.05, 0.1, 0.2, 0.5, 1.0)):
            name = f"doomed-{number}"
            crew = await rig.started(jobset(name, jobs=[replicated_job(pods=2)]))
            await rig.fail(crew, 0, 0.0)
            await rig.settle(delay_s)
            await rig.meet(crew, 2, 0.0)
            await rig.settle(delay_s)
            await rig.admin.delete(JOBSETS, "default", name)
            await rig.settle(0.0)
        await rig.settle(60.0)
        assert b"doomed" not in rig.controllers[0].metrics.text()
