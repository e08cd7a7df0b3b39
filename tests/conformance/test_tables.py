"""Tables: what kubectl prints and the agents watch."""

from __future__ import annotations

from contextlib import AsyncExitStack

import pytest

from inplace.common.kube.resources import CONFIG_MAPS, PODS
from tests.conformance.api import CONSISTENT, METADATA, TABLE, Api
from tests.conformance.widgets import COLUMNS, WIDGETS, config_map, pod

pytestmark = pytest.mark.asyncio

NAMES = ["Name", *(column["name"] for column in COLUMNS)]
LATER_EVENT_BYTES_MAX = 400
"""5,000 agents read each event: a Table row is some 250 bytes, the object several thousand."""


async def test_table_of_a_custom_resource_has_the_declared_columns(api: Api) -> None:
    """Columns are Name and the CRD's, in order, priority-1 ones included; cells have the columns' types."""
    created = await api.widget(size=7)
    await api.patch({"metadata": {"annotations": {"example.com/disabled": "yes"}}})
    await api.patch({"status": {"epoch": 3}}, subresource="status")
    shown = await api.json("GET", api.path(name="w"), accept=TABLE)
    assert shown["kind"] == "Table"
    assert shown["apiVersion"] == "meta.k8s.io/v1"
    assert [column["name"] for column in shown["columnDefinitions"]] == NAMES
    assert [column["priority"] for column in shown["columnDefinitions"]] == [0, 0, 0, 0, 1, 1, 1, 1]
    name, size, phase, age, epoch, disabled, enabled, uid = shown["rows"][0]["cells"]
    assert (name, size, phase, epoch, disabled) == ("w", 7, None, 3, "yes")
    assert age.endswith("s")
    assert enabled == "true"
    assert uid == created["metadata"]["uid"]


async def test_table_rows_carry_metadata_by_default(api: Api) -> None:
    """A row's object is PartialObjectMetadata, nothing with includeObject=None, everything with Object."""
    await api.widget()
    shown = await api.json("GET", api.path(), accept=TABLE)
    assert shown["rows"][0]["object"]["kind"] == "PartialObjectMetadata"
    assert shown["metadata"]["resourceVersion"]
    shown = await api.json("GET", api.path(), accept=TABLE, includeObject="None")
    assert shown["rows"][0]["object"] is None
    shown = await api.json("GET", api.path(), accept=TABLE, includeObject="Object")
    assert shown["rows"][0]["object"]["spec"]["size"] == 1


async def test_table_watch_sends_columns_once_and_small_events(api: Api) -> None:
    """A Table watch defines its columns in the first event; later ones are cells and a resourceVersion, few bytes."""
    await api.widget()
    query = {"fieldSelector": "metadata.name=w", "includeObject": "None", "resourceVersion": "0"}
    async with api.watch(accept=TABLE, query=query) as watch:
        first = await watch.next_change()
        assert first["type"] == "ADDED"
        assert [column["name"] for column in first["object"]["columnDefinitions"]] == NAMES
        patched = await api.patch({"status": {"epoch": 4}}, subresource="status")
        event = await watch.next_change()
        assert event["type"] == "MODIFIED"
        assert event["object"]["columnDefinitions"] is None
        assert event["object"]["metadata"]["resourceVersion"] == patched["metadata"]["resourceVersion"]
        (row,) = event["object"]["rows"]
        assert row["object"] is None
        assert dict(zip(NAMES, row["cells"], strict=True))["Epoch"] == 4
        assert watch.bytes_of_last < LATER_EVENT_BYTES_MAX


async def test_table_watch_marks_the_end_of_initial_events(api: Api) -> None:
    """The bookmark that ends the initial events is a Table whose row still says so, even with includeObject=None."""
    await api.widget()
    query = {
        "sendInitialEvents": "true",
        "resourceVersionMatch": "NotOlderThan",
        "allowWatchBookmarks": "true",
        "includeObject": "None",
    }
    async with api.watch(accept=TABLE, query=query) as watch:
        added, mark = await watch.until_initial_events_end()
    assert added["object"]["rows"][0]["object"] is None
    assert mark["object"]["kind"] == "Table"
    assert int(mark["object"]["metadata"]["resourceVersion"]) > 0
    annotations = mark["object"]["rows"][0]["object"]["metadata"]["annotations"]
    assert annotations == {"k8s.io/initial-events-end": "true"}


async def test_table_of_nothing_still_defines_its_columns(api: Api) -> None:
    """A list that selects nothing tells columns and resourceVersion, from the cache and consistently."""
    for version in ({}, {"resourceVersion": "0"}):
        query = {"fieldSelector": "metadata.name=nobody", "includeObject": "None", **version}
        shown = await api.json("GET", api.path(), accept=TABLE, **query)
        assert [column["name"] for column in shown["columnDefinitions"]] == NAMES
        assert not shown["rows"]
        assert int(shown["metadata"]["resourceVersion"]) > 0


async def test_table_watches_from_the_state_all_get_small_events(api: Api) -> None:
    """Watches that began with the state have their columns; a write's event then brings them to none of them again."""
    version = (await api.widget())["metadata"]["resourceVersion"]
    query = {**CONSISTENT, "fieldSelector": "metadata.name=w", "includeObject": "None", "resourceVersion": version}
    async with AsyncExitStack() as watches:
        opened = [await watches.enter_async_context(api.watch(accept=TABLE, query=query)) for _ in range(3)]
        for watch in opened:
            added, _ = await watch.until_initial_events_end()
            assert [column["name"] for column in added["object"]["columnDefinitions"]] == NAMES
        await api.patch({"status": {"epoch": 4}}, subresource="status")
        events = [await watch.next_change() for watch in opened]
    assert [event["object"]["columnDefinitions"] for event in events] == [None, None, None]


async def test_table_watch_bookmarks_have_a_resource_version(api: Api) -> None:
    """A plain bookmark of a Table watch carries the resourceVersion to resume from."""
    version = (await api.widget())["metadata"]["resourceVersion"]
    query = {"includeObject": "None", "allowWatchBookmarks": "true", "timeoutSeconds": "4"}
    async with api.watch(accept=TABLE, resourceVersion=version, query=query) as watch:
        await api.create(config_map(), CONFIG_MAPS)
        # A consistent read makes the real watch cache learn of the other kind's write, and so have news to mark.
        await api.client.list(WIDGETS, api.ns)
        events = await watch.rest()
    marks = [event for event in events if event["type"] == "BOOKMARK"]
    assert marks
    assert int(marks[-1]["object"]["metadata"]["resourceVersion"]) >= int(version)


async def test_table_watch_of_a_deleted_object(api: Api) -> None:
    """A DELETED event of a Table watch shows the last cells."""
    created = await api.widget(size=9)
    async with api.watch(
        accept=TABLE, includeObject="None", resourceVersion=created["metadata"]["resourceVersion"]
    ) as watch:
        await api.client.delete(WIDGETS, api.ns, "w")
        event = await watch.next_change()
    assert event["type"] == "DELETED"
    assert event["object"]["rows"][0]["cells"][:2] == ["w", 9]


async def test_first_acceptable_format_wins(api: Api) -> None:
    """Accept may list a Table first and JSON second; plain JSON alone gets the object."""
    await api.widget()
    shown = await api.json("GET", api.path(name="w"), accept=f"{TABLE},application/json")
    assert shown["kind"] == "Table"
    assert (await api.json("GET", api.path(name="w"), accept="application/json"))["kind"] == "Widget"
    assert (await api.json("GET", api.path(name="w"), accept="*/*"))["kind"] == "Widget"


async def test_patch_may_answer_with_metadata_only(api: Api) -> None:
    """A PATCH with Accept PartialObjectMetadata answers with metadata, whatever the object's size."""
    await api.widget()
    patched = await api.json(
        "PATCH",
        api.path(name="w"),
        {"metadata": {"annotations": {"epoch": "2"}}},
        content_type="application/merge-patch+json",
        accept=METADATA,
    )
    assert patched["kind"] == "PartialObjectMetadata"
    assert patched["metadata"]["annotations"] == {"epoch": "2"}
    assert "spec" not in patched


async def test_pods_print_like_kubectl(api: Api) -> None:
    """A Table of Pods has kubectl's columns: NAME READY STATUS RESTARTS AGE and the wide ones."""
    await api.create(pod(), PODS)
    shown = await api.json("GET", api.path(PODS), accept=TABLE)
    names = [column["name"] for column in shown["columnDefinitions"]]
    assert names == ["Name", "Ready", "Status", "Restarts", "Age", "IP", "Node", "Nominated Node", "Readiness Gates"]
    cells = shown["rows"][0]["cells"]
    assert cells[:4] == ["p", "0/1", "Pending", "0"]
    assert cells[5:] == ["<none>", "<none>", "<none>", "<none>"]
