"""`inplace explain` shows the Events of this JobSet, of its Pods and Jobs, and of no other object of their names."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest

from inplace.cli.status.explain import read_events
from inplace.cli.status.explanation import Subject
from inplace.common.kube.resources import JOBS, JOBSETS, PODS, Resource
from inplace.controller.api.object_events import CORE_EVENTS
from inplace.simulator.cluster.cluster import Cluster
from tests.cli.facts import text_of
from tests.cli.scenes import connection, documents, explained, jobset_of, kill, synced, training, until

pytestmark = pytest.mark.virtual_time


async def say(cluster: Cluster, kind: Resource, name: str, uid: str, message: str) -> None:
    """Write an Event about an object, which need not exist any more."""
    about = {"apiVersion": kind.api_version, "kind": kind.kind, "namespace": "default", "name": name, "uid": uid}
    event = {
        "metadata": {"name": f"{name}.{uid}", "namespace": "default"},
        "involvedObject": about,
        "reason": "FailedCreate",
        "message": message,
        "type": "Warning",
        "lastTimestamp": "2026-01-01T00:00:00Z",
    }
    await cluster.client().create(CORE_EVENTS, "default", event)


async def test_events_of_a_deleted_namesake_are_left_out() -> None:
    """A JobSet that was created anew under its name shows no restart of the one before."""
    async with training(2) as cluster:
        kill(cluster)
        await synced(cluster, 2, 2)
        old = cluster.jobset("train")["metadata"]["uid"]
        assert "GroupRestartStarted" in {event.reason for event in await events_of(cluster, JOBSETS, "train", old)}
        await cluster.client().delete(JOBSETS, "default", "train")
        await until(cluster, lambda: not cluster.pods())
        await cluster.apply([deepcopy(jobset_of(documents(2)))])
        await synced(cluster, 1, 2)
        text = text_of(await explained(cluster))
        assert "GroupRestart" not in text
        assert "epoch 2" not in text


async def events_of(cluster: Cluster, kind: Resource, name: str, uid: str = "") -> list[Any]:
    """Return the Events of an object, which could be read."""
    unread: list[str] = []
    events = await read_events(connection(cluster), Subject(kind, name, uid), unread)
    assert unread == []
    return events


@pytest.mark.parametrize("kind", [JOBS, PODS], ids=["Job", "Pod"])
async def test_an_object_is_its_uid(kind: Resource) -> None:
    """Where the caller knows no UID the object itself says it, and another one of its name is not asked."""
    async with training(1) as cluster:
        name = "train-workers-0" if kind is JOBS else cluster.pods()[0]["metadata"]["name"]
        uid = (await cluster.client().get(kind, "default", name))["metadata"]["uid"]
        await say(cluster, kind, name, uid, "of this one")
        await say(cluster, kind, name, "another", "of another one")
        assert [one.message for one in await events_of(cluster, kind, name) if one.reason == "FailedCreate"] == [
            "of this one"
        ]


async def test_what_is_gone_has_no_events() -> None:
    """The Events of a Job that is gone are not looked for by its name, and that is said."""
    async with training(1) as cluster:
        await say(cluster, JOBS, "train-workers-7", "another", "of another one")
        unread: list[str] = []
        assert await read_events(connection(cluster), Subject(JOBS, "train-workers-7"), unread) == []
        assert unread == ["Events of Job train-workers-7: it does not exist any more"]
