"""Server-side apply: ownership, conflicts, force."""

from __future__ import annotations

import json
from typing import Any

import pytest

from inplace.common.kube.client import APPLY_PATCH
from inplace.common.kube.errors import Conflict, Invalid, error_from_response
from inplace.common.kube.resources import CONFIG_MAPS, KubeObject
from tests.conformance.api import Api, refusal
from tests.conformance.widgets import WIDGETS, widget

pytestmark = pytest.mark.asyncio


async def _apply(
    api: Api, obj: KubeObject, manager: str = "one", *, subresource: str | None = None, **query: str
) -> KubeObject:
    path = api.path(WIDGETS, obj["metadata"]["name"], subresource)
    answer = await api.send("PATCH", path, obj, content_type=APPLY_PATCH, fieldManager=manager, **query)
    if answer.status >= 400:
        raise error_from_response(answer)
    decoded: KubeObject = json.loads(answer.body) | {"http": answer.status}
    return decoded


def _entry(obj: KubeObject, manager: str) -> dict[str, Any]:
    (entry,) = [entry for entry in obj["metadata"]["managedFields"] if entry["manager"] == manager]
    found: dict[str, Any] = entry
    return found


async def test_apply_creates_then_updates(api: Api) -> None:
    """Applying a missing object creates it (201); applying it again changed updates it (200)."""
    created = await _apply(api, widget(size=1))
    assert created["http"] == 201
    assert created["spec"]["mode"] == "Fast"
    updated = await _apply(api, widget(size=2))
    assert updated["http"] == 200
    assert updated["spec"]["size"] == 2
    assert updated["metadata"]["uid"] == created["metadata"]["uid"]


async def test_apply_of_the_same_configuration_changes_nothing(api: Api) -> None:
    """An identical apply keeps resourceVersion and generation."""
    first = await _apply(api, widget(size=1, parts=[{"name": "a"}]))
    again = await _apply(api, widget(size=1, parts=[{"name": "a"}]))
    assert again["metadata"]["resourceVersion"] == first["metadata"]["resourceVersion"]
    assert again["metadata"]["generation"] == 1


async def test_apply_records_the_manager_and_its_fields(api: Api) -> None:
    """The managedFields name manager, operation and exactly the applied fields."""
    applied = await _apply(api, widget(size=1, parts=[{"name": "a", "value": "x"}], tags=["t"]))
    entry = _entry(applied, "one")
    assert entry["operation"] == "Apply"
    assert entry["apiVersion"] == "example.com/v1"
    assert entry["fieldsV1"] == {
        "f:spec": {
            "f:size": {},
            "f:parts": {'k:{"name":"a"}': {".": {}, "f:name": {}, "f:value": {}}},
            "f:tags": {'v:"t"': {}},
        }
    }


async def test_apply_over_another_managers_value_conflicts(api: Api) -> None:
    """Changing a field that another manager applied is a 409 that names manager and field."""
    await _apply(api, widget(size=1))
    refused = await refusal(_apply(api, widget(size=2), "two"), Conflict)
    assert refused.message == 'Apply failed with 1 conflict: conflict with "one": .spec.size'
    assert refused.status["details"]["causes"] == [
        {"reason": "FieldManagerConflict", "message": 'conflict with "one"', "field": ".spec.size"}
    ]
    assert (await api.get())["spec"]["size"] == 1


async def test_apply_over_a_plain_update_conflicts(api: Api) -> None:
    """Fields that a create or merge patch set belong to its manager too."""
    await api.widget(size=1)
    await refusal(_apply(api, widget(size=2)), Conflict, 'conflict with "conformance" using example.com/v1')
    await _apply(api, widget("x", size=1))
    await api.patch({"spec": {"size": 5}}, "x")
    await refusal(_apply(api, widget("x", size=1)), Conflict)


async def test_apply_of_the_same_value_shares_ownership(api: Api) -> None:
    """Two managers may apply the same value; the field goes when both have dropped it."""
    await _apply(api, widget(note="abc"))
    await _apply(api, widget(note="abc"), "two")
    assert (await _apply(api, widget()))["spec"]["note"] == "abc"
    assert "note" not in (await _apply(api, widget(), "two"))["spec"]


async def test_forced_apply_takes_over(api: Api) -> None:
    """force=true sets the value and takes the field from its owner."""
    await _apply(api, widget(size=1, note="abc"))
    taken = await _apply(api, widget(size=2), "two", force="true")
    assert taken["spec"]["size"] == 2
    assert "f:size" not in _entry(taken, "one")["fieldsV1"]["f:spec"]
    assert "f:size" in _entry(taken, "two")["fieldsV1"]["f:spec"]


async def test_apply_removes_what_it_no_longer_contains(api: Api) -> None:
    """A field, list item or map key that the manager stops applying is removed; others' stay."""
    await _apply(api, widget(note="abc", parts=[{"name": "a"}, {"name": "b"}], options={"x": "1", "y": "2"}))
    await _apply(api, widget(parts=[{"name": "c"}], options={"z": "3"}), "two")
    spec = (await _apply(api, widget(parts=[{"name": "b"}], options={"y": "2"})))["spec"]
    assert "note" not in spec
    assert [part["name"] for part in spec["parts"]] == ["b", "c"]
    assert spec["options"] == {"y": "2", "z": "3"}


async def test_apply_merges_sets(api: Api) -> None:
    """A set-type list is the union of what managers applied."""
    await _apply(api, widget(tags=["a", "b"]))
    tags = (await _apply(api, widget(tags=["c"]), "two"))["spec"]["tags"]
    assert sorted(tags) == ["a", "b", "c"]


async def test_apply_replaces_atomic_lists(api: Api) -> None:
    """A list without a list type is replaced whole, and owned whole."""
    await _apply(api, widget(steps=["a", "b"]))
    assert (await _apply(api, widget(steps=["c"])))["spec"]["steps"] == ["c"]
    await refusal(_apply(api, widget(steps=["d"]), "two"), Conflict)


async def test_apply_needs_a_field_manager(api: Api) -> None:
    """Apply without fieldManager is refused."""
    answer = await api.send("PATCH", api.path(name="w"), widget(), content_type=APPLY_PATCH)
    assert answer.status == 422
    assert b"is required for apply patch" in answer.body


async def test_apply_to_status_owns_status_only(api: Api) -> None:
    """Apply on the status subresource changes the status and nothing else, and is recorded as such."""
    await api.widget(size=1)
    body = widget(size=50) | {"status": {"phase": "Ready"}}
    applied = await _apply(api, body, "one", subresource="status")
    assert applied["status"] == {"phase": "Ready"}
    assert applied["spec"]["size"] == 1
    assert _entry(applied, "one")["subresource"] == "status"


async def test_apply_to_the_object_ignores_status(api: Api) -> None:
    """Apply on the main resource leaves the status out."""
    applied = await _apply(api, widget(size=1) | {"status": {"phase": "Ready"}})
    assert "phase" not in applied.get("status", {})


async def test_apply_of_annotations_keeps_others(api: Api) -> None:
    """Applying one annotation leaves those of other managers, and a forced one replaces theirs."""
    created = widget()
    created["metadata"]["annotations"] = {"kept": "1", "epoch": "1"}
    await api.create(created)
    mine = {"apiVersion": "example.com/v1", "kind": "Widget"}
    mine["metadata"] = {"name": "w", "annotations": {"epoch": "2"}}  # type: ignore[assignment]
    await refusal(_apply(api, mine, "agent"), Conflict)
    applied = await _apply(api, mine, "agent", force="true")
    assert applied["metadata"]["annotations"] == {"kept": "1", "epoch": "2"}


async def test_apply_in_yaml(api: Api) -> None:
    """The body of an apply may be YAML."""
    text = f"apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: c\n  namespace: {api.ns}\ndata:\n  a: x\n"
    answer = await api.send(
        "PATCH", api.path(CONFIG_MAPS, "c"), text.encode(), content_type=APPLY_PATCH, fieldManager="one"
    )
    assert answer.status == 201
    assert (await api.get("c", CONFIG_MAPS))["data"] == {"a": "x"}


async def test_apply_with_another_uid_is_invalid(api: Api) -> None:
    """Apply with the uid of a gone namesake is a 422, not an update."""
    await api.widget()
    body = widget()
    body["metadata"]["uid"] = "11111111-2222-3333-4444-555555555555"
    await refusal(_apply(api, body), Invalid)


async def test_apply_of_an_invalid_object_is_refused(api: Api) -> None:
    """Apply is validated like every write."""
    await refusal(_apply(api, widget(size=101)), Invalid)
