"""`inplace restart` restarts a group once, or says why it cannot."""

from __future__ import annotations

import re

import pytest

from inplace.cli.refusal import RefusalError
from inplace.cli.status.explain import saving_text
from inplace.cli.status.restart import outcome, request_restart
from inplace.common.kube.resources import JOBSETS
from inplace.common.wire import names as wire
from inplace.simulator.cluster.manifests import with_pods
from tests.cli.scenes import another, connection, seen, status, synced, training, until
from tests.simulator.cluster.planned_stops import saving_documents

pytestmark = pytest.mark.virtual_time


async def test_a_request_restarts_the_group_once_and_does_not_count() -> None:
    """A request makes one uncounted restart; the same id makes no second one, a new id does."""
    async with training() as cluster:
        for epoch in (2, 3):
            request = await request_restart(connection(cluster), "train")
            await synced(cluster, epoch)
            state = await seen(cluster)
            assert (state.used, state.last.request if state.last else None) == (0, request)
        await cluster.clock.sleep(30)
        assert status(cluster)["syncedEpoch"] == 3


async def test_time_to_save_is_refused_where_nobody_would_save() -> None:
    """A template without a time to save asks no worker to save: the request is refused, and nothing is written."""
    async with training(2) as cluster:
        with pytest.raises(RefusalError, match=r"save-within in inplace.dev/restart on the JobSet\), saw none; leave"):
            await request_restart(connection(cluster), "train", 20)
        assert wire.RESTART_REQUESTED not in cluster.jobset("train")["metadata"].get("annotations", {})


async def test_a_request_with_time_to_save_restarts_when_that_is_over() -> None:
    """These workers do not save when they are asked: they train on, and are restarted at the end of their time."""
    async with training(2, group=with_pods(saving_documents("train.yaml", "containers"), 2)) as cluster:
        request = await request_restart(connection(cluster), "train", 20)
        await until(cluster, lambda: status(cluster).get(wire.LAST_RESTART_REQUEST) == request)
        await cluster.clock.sleep(19)
        assert status(cluster)["syncedEpoch"] == 1
        (scope,) = (await seen(cluster)).scopes
        assert scope.saving is not None
        assert re.fullmatch(
            rf"its workers save before a restart, until \d\d:\d\d:\d\d UTC at the latest \(request {request}\)",
            saving_text(scope.saving),
        )
        await until(cluster, lambda: status(cluster).get("syncedEpoch") == 2)
        assert (await seen(cluster)).scopes[0].saving is None
        state = await seen(cluster)
        assert (state.used, state.last.request if state.last else None) == (0, request)


@pytest.mark.parametrize(
    ("field", "value", "said"),
    [
        ("managedBy", "example.com/other", "managed by example.com/other"),
        ("suspend", True, "it is suspended"),
        ("failurePolicy", {"maxRestarts": 3, "restartStrategy": "Recreate"}, "does not restart in place"),
    ],
)
async def test_what_cannot_restart_is_refused_in_words(field: str, value: object, said: str) -> None:
    """A JobSet that cannot restart is refused with a message, and nothing is written."""
    async with training(1) as cluster:
        other = another()
        other["spec"][field] = value
        await cluster.apply([other])
        with pytest.raises(RefusalError, match=said):
            await request_restart(connection(cluster), "other")
        raw = await cluster.client().get(JOBSETS, "default", "other")
        assert wire.RESTART_REQUESTED not in (raw["metadata"].get("annotations") or {})


async def test_a_request_that_is_only_noted_ends_the_wait() -> None:
    """Nothing runs that could restart: `--wait` says so at once, and does not wait for ever."""
    async with training(2, group=with_pods(saving_documents("train.yaml", "containers"), 2)) as cluster:
        first = await request_restart(connection(cluster), "train")
        await until(cluster, lambda: status(cluster).get("deprecatedEpoch") == 1)
        second = await request_restart(connection(cluster), "train")
        await until(cluster, lambda: status(cluster).get(wire.LAST_RESTART_REQUEST) == second)
        with pytest.raises(RefusalError, match=f"noted request {second}, and restarts nothing for it"):
            outcome(cluster.jobset("train"), second)
        await until(cluster, lambda: status(cluster).get("syncedEpoch") == 2)
        with pytest.raises(RefusalError, match="a restart is under way already"):
            outcome(cluster.jobset("train"), second)
        done = outcome(cluster.jobset("train"), first)
        assert done is not None
        assert done.startswith("restarted in ")
        saving = await request_restart(connection(cluster), "train", 5)
        await until(cluster, lambda: status(cluster).get(wire.LAST_RESTART_REQUEST) == saving)
        assert outcome(cluster.jobset("train"), saving) is None
