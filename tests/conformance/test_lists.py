"""Lists: order, selectors, resourceVersions, paging."""

from __future__ import annotations

import pytest

from inplace.common.kube.errors import BadRequest, Expired, Invalid, ServerError
from inplace.common.kube.resources import CONFIG_MAPS, PODS
from tests.conformance.api import METADATA, Api, refusal
from tests.conformance.widgets import WIDGETS, config_map, pod, widget

pytestmark = pytest.mark.asyncio


async def _labelled(api: Api, name: str, **labels: str) -> None:
    obj = widget(name)
    obj["metadata"]["labels"] = labels
    await api.create(obj)


async def _names(api: Api, **query: str) -> list[str]:
    listed = await api.client.list(WIDGETS, api.ns, query=query)
    return [item["metadata"]["name"] for item in listed["items"]]


async def test_list_is_sorted_by_name_and_has_a_resource_version(api: Api) -> None:
    """A list comes in key order, and its resourceVersion is at least that of every item."""
    for name in ("b", "a-b", "a", "c"):
        await api.widget(name)
    listed = await api.client.list(WIDGETS, api.ns)
    assert listed["kind"] == "WidgetList"
    assert listed["apiVersion"] == "example.com/v1"
    assert [item["metadata"]["name"] for item in listed["items"]] == ["a", "a-b", "b", "c"]
    newest = max(int(item["metadata"]["resourceVersion"]) for item in listed["items"])
    assert int(listed["metadata"]["resourceVersion"]) >= newest


async def test_items_of_custom_lists_carry_their_kind(api: Api) -> None:
    """Items of a custom list have kind and apiVersion; those of a built-in list have neither."""
    await api.widget()
    await api.create(config_map(), CONFIG_MAPS)
    widgets = await api.client.list(WIDGETS, api.ns)
    assert widgets["items"][0]["kind"] == "Widget"
    maps = await api.client.list(CONFIG_MAPS, api.ns)
    assert "kind" not in maps["items"][-1]


@pytest.mark.parametrize(
    ("selector", "names"),
    [
        ("tier=front", ["a"]),
        ("tier==front", ["a"]),
        ("tier!=front", ["b", "c"]),
        ("tier", ["a", "b"]),
        ("!tier", ["c"]),
        ("tier in (front, back)", ["a", "b"]),
        ("tier notin (front)", ["b", "c"]),
        ("tier=back,zone=x", ["b"]),
        ("tier=nobody", []),
    ],
)
async def test_label_selectors(api: Api, selector: str, names: list[str]) -> None:
    """Each form of label selector picks its objects."""
    await _labelled(api, "a", tier="front")
    await _labelled(api, "b", tier="back", zone="x")
    await _labelled(api, "c")
    assert await _names(api, labelSelector=selector) == names


async def test_malformed_label_selector_is_a_bad_request(api: Api) -> None:
    """A selector that does not parse is a 400."""
    await refusal(api.client.list(WIDGETS, api.ns, query={"labelSelector": "a in ("}), BadRequest)


async def test_field_selectors(api: Api) -> None:
    """metadata.name works everywhere, a CRD's selectable field on its objects, != negates."""
    await api.widget("a", mode="Slow")
    await api.widget("b")
    assert await _names(api, fieldSelector="metadata.name=a") == ["a"]
    assert await _names(api, fieldSelector="metadata.name!=a") == ["b"]
    assert await _names(api, fieldSelector="spec.mode=Slow") == ["a"]
    assert await _names(api, fieldSelector="metadata.name=b,spec.mode=Slow") == []


async def test_unknown_field_selector_is_a_bad_request(api: Api) -> None:
    """A field that is not selectable is a 400 that names it."""
    listing = api.client.list(WIDGETS, api.ns, query={"fieldSelector": "spec.size=1"})
    await refusal(listing, BadRequest, "field label not supported: spec.size")


async def test_pods_are_selectable_by_node_and_phase(api: Api) -> None:
    """Pods can be selected by spec.nodeName and status.phase."""
    await api.create(pod(nodeName="n1"), PODS)
    for selector, count in (
        ("spec.nodeName=n1", 1),
        ("spec.nodeName=n2", 0),
        ("status.phase=Pending", 1),
        ("status.phase!=Pending", 0),
    ):
        listed = await api.client.list(PODS, api.ns, query={"fieldSelector": selector})
        assert len(listed["items"]) == count, selector


async def test_list_with_resource_version_zero_comes_from_the_cache(api: Api) -> None:
    """RV=0 answers without error with a resourceVersion, whatever its age."""
    await api.widget()
    listed = await api.client.list(WIDGETS, api.ns, query={"resourceVersion": "0"})
    assert int(listed["metadata"]["resourceVersion"]) > 0


async def test_list_not_older_than(api: Api) -> None:
    """RV=X with NotOlderThan contains what was written at X."""
    created = await api.widget()
    query = {"resourceVersion": created["metadata"]["resourceVersion"], "resourceVersionMatch": "NotOlderThan"}
    assert await _names(api, **query) == ["w"]


async def test_list_exact_shows_the_past(api: Api) -> None:
    """RV=X with Exact shows the state at X, without what came later."""
    await api.widget("a")
    then = (await api.client.list(WIDGETS, api.ns))["metadata"]["resourceVersion"]
    await api.widget("b")
    await api.client.delete(WIDGETS, api.ns, "a")
    assert await _names(api, resourceVersion=then, resourceVersionMatch="Exact") == ["a"]


async def test_list_of_a_future_resource_version_times_out(api: Api) -> None:
    """A resourceVersion that the cache does not reach is a 504 with a Retry-After, after some seconds of trying."""
    version = (await api.client.list(WIDGETS, api.ns))["metadata"]["resourceVersion"]
    future = str(int(version) + 1_000_000)
    query = {"resourceVersion": future, "resourceVersionMatch": "NotOlderThan"}
    listing = api.client.list(WIDGETS, api.ns, query=query)
    refused = await refusal(listing, ServerError, "Too large resource version")
    assert (refused.code, refused.reason, refused.after_s) == (504, "Timeout", 1)


async def test_resource_version_match_needs_a_resource_version(api: Api) -> None:
    """A resourceVersionMatch alone is a 422."""
    listing = api.client.list(WIDGETS, api.ns, query={"resourceVersionMatch": "NotOlderThan"})
    await refusal(listing, Invalid, "resourceVersionMatch is forbidden unless resourceVersion is provided")


async def test_resource_version_must_be_a_number(api: Api) -> None:
    """A resourceVersion that is no number is a 400."""
    await refusal(api.client.list(WIDGETS, api.ns, query={"resourceVersion": "abc"}), BadRequest)


async def test_limit_and_continue_page_through_a_snapshot(api: Api) -> None:
    """Pages cover the state of the first one exactly, whatever is written between them."""
    for name in ("a", "b", "c", "d", "e"):
        await api.widget(name)
    first = await api.client.list(WIDGETS, api.ns, query={"limit": "2"})
    assert first["metadata"]["remainingItemCount"] == 3
    names = [item["metadata"]["name"] for item in first["items"]]
    await api.client.delete(WIDGETS, api.ns, "d")
    await api.widget("bb")
    token = first["metadata"]["continue"]
    while token:
        page = await api.client.list(WIDGETS, api.ns, query={"limit": "2", "continue": token})
        names += [item["metadata"]["name"] for item in page["items"]]
        token = page["metadata"].get("continue", "")
        assert page["metadata"]["resourceVersion"] == first["metadata"]["resourceVersion"]
    assert names == ["a", "b", "c", "d", "e"]


async def test_malformed_continue_is_a_bad_request(api: Api) -> None:
    """A continue token that the server did not make is a 400."""
    await refusal(api.client.list(WIDGETS, api.ns, query={"limit": "1", "continue": "nonsense"}), (BadRequest, Expired))


async def test_metadata_only_list(api: Api) -> None:
    """PartialObjectMetadataList leaves spec and status out."""
    await api.widget()
    accept = METADATA.replace("PartialObjectMetadata", "PartialObjectMetadataList")
    listed = await api.json("GET", api.path(), accept=accept)
    assert listed["kind"] == "PartialObjectMetadataList"
    assert listed["items"][0]["kind"] == "PartialObjectMetadata"
    assert listed["items"][0]["metadata"]["name"] == "w"
    assert "spec" not in listed["items"][0]
