"""Watches: where they start, what they deliver, how they end."""

from __future__ import annotations

import json

import pytest

from inplace.common.kube.http.request import Request
from inplace.common.kube.resources import CONFIG_MAPS, PODS
from tests.conformance.api import CONSISTENT, DEADLINE_S, METADATA, Api
from tests.conformance.widgets import WIDGETS, config_map, pod, widget

pytestmark = pytest.mark.asyncio


async def _version(api: Api) -> str:
    """Return the list's resourceVersion."""
    version: str = (await api.client.list(WIDGETS, api.ns))["metadata"]["resourceVersion"]
    return version


@pytest.mark.parametrize("start", [{}, {"resourceVersion": "0"}], ids=["unset", "zero"])
async def test_watch_without_a_resource_version_starts_with_what_is_there(api: Api, start: dict[str, str]) -> None:
    """RV unset or 0 delivers the present objects as ADDED, then what changes."""
    await api.widget("a")
    await api.widget("b")
    # The cache that RV=0 reads may be older than the writes; a consistent watch waits until it is not.
    async with api.watch(query=CONSISTENT) as ready:
        await ready.until_initial_events_end()
    async with api.watch(query=start) as watch:
        assert sorted(await watch.seen(2)) == [("ADDED", "a"), ("ADDED", "b")]
        await api.widget("c")
        assert await watch.seen(1) == [("ADDED", "c")]


async def test_watch_from_a_resource_version_delivers_only_what_came_later(api: Api) -> None:
    """RV=X delivers every change after X, in order, and nothing before."""
    await api.widget("before")
    version = await _version(api)
    await api.widget("a")
    await api.patch({"spec": {"size": 5}}, "a")
    await api.client.delete(WIDGETS, api.ns, "a")
    async with api.watch(resourceVersion=version) as watch:
        assert await watch.seen(3) == [("ADDED", "a"), ("MODIFIED", "a"), ("DELETED", "a")]


async def test_resource_versions_of_events_increase(api: Api) -> None:
    """Each event of a resource carries a greater resourceVersion than the one before, deletions included."""
    version = await _version(api)
    created = await api.widget("a")
    await api.patch({"spec": {"size": 5}}, "a")
    await api.client.delete(WIDGETS, api.ns, "a")
    async with api.watch(resourceVersion=version) as watch:
        versions = [int((await watch.next_change())["object"]["metadata"]["resourceVersion"]) for _ in range(3)]
    assert versions == sorted(set(versions))
    assert versions[0] == int(created["metadata"]["resourceVersion"])


async def test_watch_events_carry_whole_objects(api: Api) -> None:
    """A MODIFIED event's object is what GET returns."""
    await api.widget("a")
    version = await _version(api)
    patched = await api.patch({"spec": {"size": 5}}, "a")
    async with api.watch(resourceVersion=version) as watch:
        assert (await watch.next_change())["object"] == patched


async def test_watch_of_one_name_sees_nothing_else(api: Api) -> None:
    """A fieldSelector on metadata.name delivers one object's events only."""
    version = await _version(api)
    async with api.watch(resourceVersion=version, fieldSelector="metadata.name=mine") as watch:
        await api.widget("other")
        await api.widget("mine")
        await api.patch({"spec": {"size": 5}}, "other")
        await api.patch({"spec": {"size": 6}}, "mine")
        assert await watch.seen(2) == [("ADDED", "mine"), ("MODIFIED", "mine")]


async def test_watch_of_one_namespace_sees_no_other(api: Api) -> None:
    """A namespaced watch leaves other namespaces out; a watch of all namespaces does not."""
    name = f"{api.ns}-elsewhere"
    version = await _version(api)
    elsewhere = widget(name)
    await api.client.create(WIDGETS, "default", elsewhere)
    await api.widget("here")
    async with api.watch(resourceVersion=version) as watch:
        assert await watch.seen(1) == [("ADDED", "here")]
    async with api.watch(everywhere=True, resourceVersion=version, fieldSelector=f"metadata.name={name}") as watch:
        assert await watch.seen(1) == [("ADDED", name)]
    await api.client.delete(WIDGETS, "default", name)


async def test_object_that_leaves_a_selection_is_deleted_from_it(api: Api) -> None:
    """A label change out of the selector is DELETED with the last matching state, one into it ADDED."""
    obj = widget("a")
    obj["metadata"]["labels"] = {"in": "yes"}
    version = await _version(api)
    await api.create(obj)
    left = await api.patch({"metadata": {"labels": {"in": "no"}}}, "a")
    await api.patch({"metadata": {"labels": {"other": "x"}}}, "a")
    await api.patch({"metadata": {"labels": {"in": "yes"}}}, "a")
    async with api.watch(resourceVersion=version, labelSelector="in=yes") as watch:
        assert (await watch.next_change())["type"] == "ADDED"
        deleted = await watch.next_change()
        assert deleted["type"] == "DELETED"
        assert deleted["object"]["metadata"]["labels"] == {"in": "yes"}
        assert deleted["object"]["metadata"]["resourceVersion"] == left["metadata"]["resourceVersion"]
        assert await watch.seen(1) == [("ADDED", "a")]


async def test_object_that_leaves_a_field_selection_is_deleted_from_it(api: Api) -> None:
    """A Pod whose phase stops matching is DELETED from a watch by status.phase."""
    version = await _version(api)
    await api.create(pod(), PODS)
    await api.patch({"status": {"phase": "Running"}}, "p", PODS, subresource="status")
    async with api.watch(PODS, resourceVersion=version, fieldSelector="status.phase=Pending") as watch:
        events = [await watch.next_change()]
        while events[-1]["type"] != "DELETED":
            events.append(await watch.next_change())
        assert events[0]["type"] == "ADDED"


async def test_initial_events_end_with_a_bookmark(api: Api) -> None:
    """With sendInitialEvents and RV unset every completed write comes first, then one marked bookmark, then changes."""
    await api.widget("a")
    created = await api.widget("b")
    async with api.watch(query=CONSISTENT) as watch:
        events = await watch.until_initial_events_end()
        assert [event["type"] for event in events] == ["ADDED", "ADDED", "BOOKMARK"]
        mark = events[-1]["object"]
        assert mark["metadata"]["annotations"] == {"k8s.io/initial-events-end": "true"}
        assert mark["kind"] == "Widget"
        assert int(mark["metadata"]["resourceVersion"]) >= int(created["metadata"]["resourceVersion"])
        await api.widget("c")
        assert await watch.seen(1) == [("ADDED", "c")]


async def test_bookmark_ends_initial_events_that_were_not_asked_for(api: Api) -> None:
    """With bookmarks allowed, the initial events of RV unset or 0 end with the same marked bookmark."""
    await api.widget("a")
    for start in ({}, {"resourceVersion": "0"}):
        async with api.watch(query={"allowWatchBookmarks": "true", **start}) as watch:
            events = await watch.until_initial_events_end()
        assert events[-1]["object"]["metadata"]["annotations"] == {"k8s.io/initial-events-end": "true"}


async def test_initial_events_of_an_empty_selection(api: Api) -> None:
    """With nothing to show, the bookmark comes at once."""
    async with api.watch(fieldSelector="metadata.name=nobody", query=CONSISTENT) as watch:
        events = await watch.until_initial_events_end()
        assert [event["type"] for event in events] == ["BOOKMARK"]


async def test_initial_events_not_older_than(api: Api) -> None:
    """A watch with sendInitialEvents and RV=X shows what was written at X."""
    created = await api.widget("a")
    version = created["metadata"]["resourceVersion"]
    async with api.watch(resourceVersion=version, query=CONSISTENT) as watch:
        events = await watch.until_initial_events_end()
        assert [event["type"] for event in events] == ["ADDED", "BOOKMARK"]


async def test_send_initial_events_needs_not_older_than(api: Api) -> None:
    """A sendInitialEvents without resourceVersionMatch is a 422 before any stream."""
    answer = await api.send("GET", api.path(), watch="true", sendInitialEvents="true", allowWatchBookmarks="true")
    assert answer.status == 422
    assert b"sendInitialEvents requires setting resourceVersionMatch to NotOlderThan" in answer.body


async def test_resource_version_match_needs_send_initial_events(api: Api) -> None:
    """A resourceVersionMatch on a watch without sendInitialEvents is a 422."""
    answer = await api.send("GET", api.path(), watch="true", resourceVersion="0", resourceVersionMatch="NotOlderThan")
    assert answer.status == 422


async def test_too_old_resource_version_is_an_error_event(api: Api) -> None:
    """A watch from forgotten history is a 200 stream whose only event is an ERROR with a 410 Status."""
    async with api.watch(resourceVersion="1") as watch:
        assert watch.status == 200
        (event,) = await watch.rest()
    assert event["type"] == "ERROR"
    assert event["object"]["kind"] == "Status"
    assert event["object"]["code"] == 410
    assert event["object"]["reason"] == "Expired"
    assert event["object"]["message"].startswith("too old resource version: 1 (")


async def test_malformed_resource_version_is_refused(api: Api) -> None:
    """A watch from a resourceVersion that is no number is an error without a stream; the real server says 500."""
    answer = await api.send("GET", api.path(), watch="true", resourceVersion="abc")
    assert answer.status == 500
    assert b"resourceVersion: Invalid value" in answer.body


async def test_timeout_seconds_ends_the_watch_cleanly(api: Api) -> None:
    """A timeoutSeconds ends the stream with a complete body and no ERROR event."""
    version = await _version(api)
    await api.widget("a")
    async with api.watch(resourceVersion=version, timeoutSeconds="1") as watch:
        events = await watch.rest()
    assert [event["type"] for event in events] == ["ADDED"]


async def test_bookmarks_carry_only_a_resource_version(api: Api) -> None:
    """A watch that allows bookmarks gets one before it ends, with a resourceVersion that a new watch may start from."""
    version = await _version(api)
    await api.widget("a")
    async with api.watch(resourceVersion=version, timeoutSeconds="4", allowWatchBookmarks="true") as watch:
        await api.create(config_map(), CONFIG_MAPS)
        await _version(api)  # a consistent read gives the real watch cache news to mark
        events = await watch.rest()
    marks = [event for event in events if event["type"] == "BOOKMARK"]
    assert marks
    assert marks[-1]["object"]["metadata"].keys() == {"resourceVersion"}
    await api.widget("b")
    async with api.watch(resourceVersion=marks[-1]["object"]["metadata"]["resourceVersion"]) as watch:
        assert await watch.seen(1) == [("ADDED", "b")]


async def test_no_bookmarks_unless_allowed(api: Api) -> None:
    """A watch that does not ask for bookmarks gets none."""
    version = await _version(api)
    async with api.watch(resourceVersion=version, timeoutSeconds="4") as watch:
        assert await watch.rest() == []


async def test_write_that_changes_nothing_sends_no_event(api: Api) -> None:
    """A PATCH to the value that is there is answered with the same resourceVersion and reaches no watcher."""
    created = await api.widget("a", size=5)
    version = await _version(api)
    patched = await api.patch({"spec": {"size": 5}}, "a")
    assert patched["metadata"]["resourceVersion"] == created["metadata"]["resourceVersion"]
    await api.widget("b")
    async with api.watch(resourceVersion=version) as watch:
        assert await watch.seen(1) == [("ADDED", "b")]


async def test_metadata_watch(api: Api) -> None:
    """A watch may ask for PartialObjectMetadata: events without spec and status."""
    version = await _version(api)
    await api.widget("a")
    async with api.watch(accept=METADATA, resourceVersion=version) as watch:
        event = await watch.next_change()
    assert event["object"]["kind"] == "PartialObjectMetadata"
    assert event["object"]["metadata"]["name"] == "a"
    assert "spec" not in event["object"]


async def test_watch_headers(api: Api) -> None:
    """A watch answers with JSON in chunks of unknown length."""
    path = CONFIG_MAPS.path(api.ns, query={"watch": "true", "timeoutSeconds": "1"})
    request = Request("GET", path, {"accept": "application/json"})
    async with api.transport.stream(request, timeout_s=DEADLINE_S) as stream:
        assert stream.headers["content-type"].startswith("application/json")
        assert stream.headers["transfer-encoding"] == "chunked"
        assert "content-length" not in stream.headers


async def test_events_are_lines(api: Api) -> None:
    """Each event is one JSON document with type and object, ended by a newline."""
    version = await _version(api)
    await api.widget("a")
    path = WIDGETS.path(api.ns, query={"watch": "true", "resourceVersion": version, "timeoutSeconds": "1"})
    answer = await api.transport.request(Request("GET", path, {"accept": "application/json"}), timeout_s=DEADLINE_S)
    assert answer.body.endswith(b"\n")
    assert [json.loads(line).keys() for line in answer.body.splitlines()] == [{"type", "object"}]
