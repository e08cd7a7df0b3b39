"""Custom resources: defaults, pruning, schemas, CEL, the status subresource."""

from __future__ import annotations

from typing import Any

import pytest

from inplace.common.kube.errors import BadRequest, Invalid
from inplace.common.kube.resources import CONFIG_MAPS, CUSTOM_RESOURCE_DEFINITIONS
from tests.conformance.api import Api, refusal
from tests.conformance.widgets import WIDGETS, widget

pytestmark = pytest.mark.asyncio


async def test_defaults_are_filled_in(api: Api) -> None:
    """Absent fields get their defaults, also inside defaulted objects and list items; given ones stay."""
    spec = (await api.widget(parts=[{"name": "a"}, {"name": "b", "value": "x"}]))["spec"]
    assert (spec["size"], spec["mode"], spec["nested"]) == (1, "Fast", {"enabled": True})
    assert spec["parts"] == [{"name": "a", "value": "none"}, {"name": "b", "value": "x"}]
    assert (await api.widget("zero", size=0, nested={"enabled": False}))["spec"]["nested"] == {"enabled": False}
    assert (await api.get("zero"))["spec"]["size"] == 0


async def test_null_counts_as_absent_for_defaults(api: Api) -> None:
    """An explicit null is replaced by the default."""
    assert (await api.widget(size=None))["spec"]["size"] == 1


async def test_null_without_default_is_dropped(api: Api) -> None:
    """An explicit null for a field without a default disappears."""
    assert "note" not in (await api.widget(note=None))["spec"]


async def test_unknown_fields_are_pruned(api: Api) -> None:
    """Fields that the schema does not know vanish, at the top and deep inside, on create and on patch."""
    created = await api.create(
        widget(typo=1, nested={"enabled": True, "typo": 1}, parts=[{"name": "a", "typo": 1}]) | {"other": 1}
    )
    assert "typo" not in created["spec"]
    assert "typo" not in created["spec"]["nested"]
    assert "typo" not in created["spec"]["parts"][0]
    assert "other" not in created
    patched = await api.patch({"spec": {"typo": 2}})
    assert "typo" not in patched["spec"]
    assert patched["metadata"]["resourceVersion"] == created["metadata"]["resourceVersion"]


async def test_preserved_unknown_fields_stay(api: Api) -> None:
    """x-kubernetes-preserve-unknown-fields keeps what the schema does not know."""
    free = {"anything": {"goes": [1, "two", None]}}
    assert (await api.widget(free=free))["spec"]["free"] == free


async def test_strict_validation_refuses_unknown_fields(api: Api) -> None:
    """fieldValidation=Strict answers an unknown field with a 400 that names it."""
    answer = await api.send("POST", api.path(), widget(typo=1), fieldValidation="Strict")
    assert answer.status == 400
    assert b'strict decoding error: unknown field \\"spec.typo\\"' in answer.body


@pytest.mark.parametrize(
    ("spec", "field", "words"),
    [
        ({"size": 101}, "spec.size", "should be less than or equal to 100"),
        ({"size": -1}, "spec.size", "should be greater than or equal to 0"),
        ({"size": "big"}, "spec.size", 'must be of type integer: "string"'),
        ({"mode": "Odd"}, "spec.mode", 'Unsupported value: "Odd": supported values: "Fast", "Slow"'),
        ({"note": "ABC"}, "spec.note", "should match '^[a-z]*$'"),
        ({"note": "abcdefghijk"}, "spec.note", "Too long"),
        ({"steps": ["a", "b", "c", "d"]}, "spec.steps", "Too many: 4: must have at most 3 items"),
        ({"parts": [{"value": "x"}]}, "spec.parts[0].name", "Required value"),
        ({"parts": [{"name": "a"}, {"name": "a"}]}, "spec.parts[1]", "Duplicate value"),
        ({"tags": ["a", "a"]}, "spec.tags[1]", 'Duplicate value: "a"'),
        ({"nested": "text"}, "spec.nested", 'must be of type object: "string"'),
        ({"count": 2147483648}, "<nil>", "integer with format int32 in spec.count"),
        ({"count": 1.5}, "spec.count", "must be of type integer"),
        ({"ratio": True}, "spec.ratio", "must be of type integer"),
    ],
    ids=lambda value: value if isinstance(value, str) and value.startswith("spec") else None,
)
async def test_schema_violations(api: Api, spec: dict[str, Any], field: str, words: str) -> None:
    """Each broken schema keyword is a 422 that names the field and the rule."""
    refused = await refusal(api.widget(**spec), Invalid, words)
    assert refused.reason == "Invalid"
    assert field in [cause["field"] for cause in refused.status["details"]["causes"]]


async def test_missing_spec_is_invalid(api: Api) -> None:
    """A required top-level field that is missing is a 422."""
    obj = widget()
    del obj["spec"]
    refused = await refusal(api.create(obj), Invalid, "spec: Required value")
    assert refused.status["details"]["causes"][0]["field"] == "spec"


@pytest.mark.parametrize("value", [7, "50%"])
async def test_int_or_string_takes_both(api: Api, value: object) -> None:
    """x-kubernetes-int-or-string accepts a number and a string."""
    assert (await api.widget(ratio=value))["spec"]["ratio"] == value


async def test_cel_rule_with_message(api: Api) -> None:
    """A broken x-kubernetes-validations rule is a 422 with the rule's own message, at the rule's place."""
    await api.widget("fine", low=1, high=2)
    refused = await refusal(api.widget(low=3, high=2), Invalid, "low must not exceed high")
    assert refused.status["details"]["causes"][0]["field"] == "spec"


async def test_transition_rule_keeps_a_field(api: Api) -> None:
    """A rule self == oldSelf forbids changing a value, but neither setting it first nor changing its neighbours."""
    await api.widget()
    await api.patch({"spec": {"fixed": "a"}})
    await api.patch({"spec": {"size": 2}})
    refused = await refusal(api.patch({"spec": {"fixed": "b"}}), Invalid, "Value is immutable")
    assert refused.status["details"]["causes"][0]["field"] == "spec.fixed"


async def test_transition_rule_makes_a_counter_monotone(api: Api) -> None:
    """A rule self >= oldSelf lets a counter grow or stay, never fall."""
    await api.widget(counter=5)
    assert (await api.patch({"spec": {"counter": 6}}))["spec"]["counter"] == 6
    assert (await api.patch({"spec": {"counter": 6, "size": 3}}))["spec"]["counter"] == 6
    await refusal(api.patch({"spec": {"counter": 5}}), Invalid, "counter must not decrease")


async def test_transition_rule_holds_for_status(api: Api) -> None:
    """A monotone rule in the status is enforced on the status subresource, for PATCH and PUT."""
    await api.widget()
    current = await api.patch({"status": {"epoch": 2}}, subresource="status")
    await refusal(api.patch({"status": {"epoch": 1}}, subresource="status"), Invalid, "epoch must not decrease")
    current["status"]["epoch"] = 0
    await refusal(api.client.replace(WIDGETS, api.ns, "w", current, subresource="status"), Invalid)


async def test_create_ignores_status(api: Api) -> None:
    """The status of a create body is dropped."""
    created = await api.create(widget() | {"status": {"phase": "Ready"}})
    assert "status" not in created


async def test_main_resource_does_not_write_status(api: Api) -> None:
    """PUT and PATCH of the object leave the status as it is."""
    await api.widget()
    await api.patch({"status": {"phase": "Ready"}}, subresource="status")
    patched = await api.patch({"spec": {"size": 2}, "status": {"phase": "Broken"}})
    assert patched["status"]["phase"] == "Ready"
    patched["status"]["phase"] = "Broken"
    replaced = await api.client.replace(WIDGETS, api.ns, "w", patched)
    assert replaced["status"]["phase"] == "Ready"


async def test_status_subresource_does_not_write_the_object(api: Api) -> None:
    """PUT and PATCH of the status leave spec, labels and generation as they are."""
    created = await api.widget(size=1)
    created |= {"status": {"phase": "Ready"}, "spec": {"size": 9}}
    created["metadata"]["labels"] = {"a": "b"}
    replaced = await api.client.replace(WIDGETS, api.ns, "w", created, subresource="status")
    assert replaced["status"]["phase"] == "Ready"
    assert replaced["spec"]["size"] == 1
    assert "labels" not in replaced["metadata"]
    assert replaced["metadata"]["generation"] == 1
    patched = await api.patch({"spec": {"size": 9}, "status": {"epoch": 1}}, subresource="status")
    assert patched["spec"]["size"] == 1
    assert patched["status"] == {"phase": "Ready", "epoch": 1}


async def test_status_write_with_an_old_resource_version_conflicts(api: Api) -> None:
    """Status writes are conditional like all others: an annotation in between makes a PUT a 409."""
    created = await api.widget()
    await api.patch({"metadata": {"annotations": {"a": "b"}}})
    answer = await api.send("PUT", api.path(name="w", subresource="status"), created | {"status": {"epoch": 1}})
    assert answer.status == 409


async def test_wrong_api_version_or_kind_is_refused(api: Api) -> None:
    """A body of another version than the URL's is a 400, one of another kind a 422 (400 for built-in kinds)."""
    await refusal(api.create(widget() | {"apiVersion": "example.com/v2"}), BadRequest)
    await refusal(api.create(widget() | {"kind": "Gadget"}), Invalid)
    await refusal(api.create(widget(), CONFIG_MAPS), BadRequest)


async def test_definition_is_established(api: Api) -> None:
    """An installed CRD reports Established and its accepted names, which `kubectl wait` reads."""
    crd = await api.client.get(CUSTOM_RESOURCE_DEFINITIONS, None, "widgets.example.com")
    held = {c["type"]: c["status"] for c in crd["status"]["conditions"]}
    assert held["Established"] == "True"
    assert crd["status"]["acceptedNames"]["plural"] == "widgets"
    assert crd["status"]["storedVersions"] == ["v1"]
