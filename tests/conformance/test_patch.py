"""PATCH in its four types."""

from __future__ import annotations

from typing import Any

import pytest

from inplace.common.kube.client import JSON_PATCH, MERGE_PATCH, STRATEGIC_MERGE_PATCH
from inplace.common.kube.errors import ApiError, BadRequest, Conflict, Invalid, NotFound
from inplace.common.kube.resources import CONFIG_MAPS, PODS, KubeObject
from tests.conformance.api import Api, refusal
from tests.conformance.widgets import config_map, pod, widget

pytestmark = pytest.mark.asyncio


def two_containers(**spec: Any) -> KubeObject:
    """Return a Pod with two containers."""
    containers = [
        {"name": "a", "image": "i:1", "env": [{"name": "X", "value": "1"}, {"name": "Y", "value": "2"}]},
        {"name": "b", "image": "i:1"},
    ]
    return pod(containers=containers, **spec)


async def test_merge_patch_merges_objects_and_replaces_lists(api: Api) -> None:
    """A merge patch changes what it names, replaces lists whole, and null removes."""
    await api.widget(size=5, note="abc", tags=["x", "y"], options={"a": "1", "b": "2"})
    patched = await api.patch({"spec": {"tags": ["z"], "note": None, "options": {"b": None, "c": "3"}}})
    assert patched["spec"]["size"] == 5
    assert patched["spec"]["tags"] == ["z"]
    assert "note" not in patched["spec"]
    assert patched["spec"]["options"] == {"a": "1", "c": "3"}


async def test_merge_patch_needs_no_resource_version_but_honours_one(api: Api) -> None:
    """A PATCH with an old resourceVersion is a 409; without one it always applies to the newest state."""
    created = await api.widget()
    await api.patch({"spec": {"size": 2}})
    stale = {"metadata": {"resourceVersion": created["metadata"]["resourceVersion"]}, "spec": {"size": 3}}
    await refusal(api.patch(stale), Conflict, "the object has been modified")
    assert (await api.patch({"spec": {"size": 4}}))["spec"]["size"] == 4


@pytest.mark.parametrize("kind", [MERGE_PATCH, STRATEGIC_MERGE_PATCH])
async def test_patch_with_the_pods_uid_is_safe_against_its_namesake(api: Api, kind: str) -> None:
    """metadata.uid in a Pod's PATCH body must match: another uid is a 422 on metadata.uid (NOT a 409), no write."""
    created = await api.create(two_containers(), PODS)
    right = {"metadata": {"uid": created["metadata"]["uid"], "annotations": {"epoch": "1"}}}
    assert (await api.patch(right, "p", PODS, kind=kind))["metadata"]["annotations"]["epoch"] == "1"
    wrong = {"metadata": {"uid": "11111111-2222-3333-4444-555555555555", "annotations": {"epoch": "2"}}}
    refused = await refusal(api.patch(wrong, "p", PODS, kind=kind), Invalid, "field is immutable")
    assert {cause["field"] for cause in refused.status["details"]["causes"]} == {"metadata.uid"}
    assert (await api.get("p", PODS))["metadata"]["annotations"]["epoch"] == "1"


async def test_patch_of_a_missing_object_is_not_found(api: Api) -> None:
    """Merge, strategic and JSON patches of a missing object are 404s."""
    await refusal(api.patch({"spec": {}}), NotFound)
    await refusal(api.patch({"metadata": {}}, "p", PODS, kind=STRATEGIC_MERGE_PATCH), NotFound)
    await refusal(api.patch([], kind=JSON_PATCH), NotFound)


async def test_patch_cannot_rename(api: Api) -> None:
    """A PATCH that changes metadata.name is a 400."""
    await api.widget()
    await refusal(api.patch({"metadata": {"name": "other"}}), BadRequest)


async def test_strategic_patch_merges_containers_by_name(api: Api) -> None:
    """A strategic patch changes one container's image and leaves its siblings and their order alone."""
    await api.create(two_containers(), PODS)
    patch = {"spec": {"containers": [{"name": "b", "image": "i:2"}]}}
    patched = await api.patch(patch, "p", PODS, kind=STRATEGIC_MERGE_PATCH)
    containers = patched["spec"]["containers"]
    assert [(c["name"], c["image"]) for c in containers] == [("a", "i:1"), ("b", "i:2")]
    assert [variable["name"] for variable in containers[0]["env"]] == ["X", "Y"]


async def test_strategic_patch_of_annotations_merges(api: Api) -> None:
    """Annotations merge key by key, null removes one."""
    await api.create(two_containers(), PODS)
    await api.patch({"metadata": {"annotations": {"a": "1", "b": "2"}}}, "p", PODS, kind=STRATEGIC_MERGE_PATCH)
    patch = {"metadata": {"annotations": {"a": None, "c": "3"}}}
    patched = await api.patch(patch, "p", PODS, kind=STRATEGIC_MERGE_PATCH)
    assert patched["metadata"]["annotations"] == {"b": "2", "c": "3"}


async def test_strategic_patch_adds_and_removes_finalizers(api: Api) -> None:
    """Finalizers are a set: patches add to it, and $deleteFromPrimitiveList takes away."""
    obj: KubeObject = config_map()
    obj["metadata"]["finalizers"] = ["example.com/a"]
    await api.create(obj, CONFIG_MAPS)
    patch = {"metadata": {"finalizers": ["example.com/b"]}}
    patched = await api.patch(patch, "c", CONFIG_MAPS, kind=STRATEGIC_MERGE_PATCH)
    assert sorted(patched["metadata"]["finalizers"]) == ["example.com/a", "example.com/b"]
    patch = {"metadata": {"$deleteFromPrimitiveList/finalizers": ["example.com/a", "example.com/b"]}}
    patched = await api.patch(patch, "c", CONFIG_MAPS, kind=STRATEGIC_MERGE_PATCH)
    assert not patched["metadata"].get("finalizers")


async def test_strategic_patch_deletes_a_condition(api: Api) -> None:
    """Pod conditions merge by type; `$patch: delete` removes one."""
    await api.create(two_containers(), PODS)
    two = [{"type": "example.com/A", "status": "True"}, {"type": "example.com/B", "status": "True"}]
    await api.patch({"status": {"conditions": two}}, "p", PODS, kind=STRATEGIC_MERGE_PATCH, subresource="status")
    gone = [{"type": "example.com/A", "$patch": "delete"}, {"type": "example.com/B", "status": "False"}]
    patched = await api.patch(
        {"status": {"conditions": gone}}, "p", PODS, kind=STRATEGIC_MERGE_PATCH, subresource="status"
    )
    ours = {c["type"]: c["status"] for c in patched["status"]["conditions"] if c["type"].startswith("example.com/")}
    assert ours == {"example.com/B": "False"}


async def test_strategic_patch_replaces_a_map(api: Api) -> None:
    """`$patch: replace` in a map drops what the patch does not name."""
    obj = config_map(data={"a": "1"})
    await api.create(obj, CONFIG_MAPS)
    patch = {"data": {"$patch": "replace", "b": "2"}}
    assert (await api.patch(patch, "c", CONFIG_MAPS, kind=STRATEGIC_MERGE_PATCH))["data"] == {"b": "2"}


async def test_custom_resources_have_no_strategic_patch(api: Api) -> None:
    """A strategic patch of a custom object is a 415."""
    await api.widget()
    refused = await refusal(api.patch({"spec": {"size": 2}}, kind=STRATEGIC_MERGE_PATCH), ApiError)
    assert refused.code == 415
    assert refused.reason == "UnsupportedMediaType"


async def test_json_patch_operations(api: Api) -> None:
    """add, replace, remove, move, copy and test work in order."""
    await api.widget(size=1, steps=["a", "b"], options={"x": "1"})
    operations = [
        {"op": "test", "path": "/spec/size", "value": 1},
        {"op": "replace", "path": "/spec/size", "value": 2},
        {"op": "add", "path": "/spec/steps/1", "value": "between"},
        {"op": "remove", "path": "/spec/steps/0"},
        {"op": "copy", "from": "/spec/options/x", "path": "/spec/options/y"},
        {"op": "move", "from": "/spec/options/x", "path": "/spec/options/z~1"},
        {"op": "add", "path": "/spec/steps/-", "value": "end"},
    ]
    spec = (await api.patch(operations, kind=JSON_PATCH))["spec"]
    assert (spec["size"], spec["steps"]) == (2, ["between", "b", "end"])
    assert spec["options"] == {"y": "1", "z/": "1"}


async def test_json_patch_whose_test_fails_changes_nothing(api: Api) -> None:
    """A failing `test` is a 422, and earlier operations of the patch are not applied."""
    await api.widget(size=1)
    operations = [
        {"op": "replace", "path": "/spec/size", "value": 2},
        {"op": "test", "path": "/spec/mode", "value": "Slow"},
    ]
    await refusal(api.patch(operations, kind=JSON_PATCH), Invalid)
    assert (await api.get())["spec"]["size"] == 1


async def test_json_patch_of_a_missing_path_is_invalid(api: Api) -> None:
    """Removing a path that is not there is a 422."""
    await api.widget()
    await refusal(api.patch([{"op": "remove", "path": "/spec/nobody"}], kind=JSON_PATCH), Invalid)


async def test_json_patch_that_is_no_list_is_a_bad_request(api: Api) -> None:
    """An object as JSON patch is a 400."""
    await api.widget()
    await refusal(api.patch({"op": "remove"}, kind=JSON_PATCH), BadRequest)


async def test_patch_result_is_validated(api: Api) -> None:
    """A patch to an invalid object is a 422 and changes nothing."""
    await api.widget(size=1)
    await refusal(api.patch({"spec": {"size": 101}}), Invalid)
    assert (await api.get())["spec"]["size"] == 1


async def test_patch_increases_nothing_but_its_object(api: Api) -> None:
    """A PATCH leaves the other objects' resourceVersions alone."""
    other = await api.create(widget("other"))
    await api.widget()
    await api.patch({"spec": {"size": 2}})
    assert await api.get("other") == other
