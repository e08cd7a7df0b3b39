"""Create, read, replace: the life of an object without watches."""

from __future__ import annotations

import re

import pytest

from inplace.common.kube.errors import AlreadyExists, BadRequest, Conflict, Invalid, NotFound
from inplace.common.kube.resources import CONFIG_MAPS, LEASES, NAMESPACES, SERVICES
from tests.conformance.api import Api, refusal
from tests.conformance.widgets import WIDGETS, config_map, widget

pytestmark = pytest.mark.asyncio


async def test_create_returns_what_get_returns(api: Api) -> None:
    """A created object comes back with server-side metadata and reads back equal."""
    created = await api.widget(size=3)
    assert created["metadata"]["namespace"] == api.ns
    assert created["metadata"]["uid"]
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", created["metadata"]["creationTimestamp"])
    assert created["metadata"]["generation"] == 1
    assert int(created["metadata"]["resourceVersion"]) > 0
    assert await api.get() == created


async def test_create_of_an_existing_name_is_already_exists(api: Api) -> None:
    """A second create with the same name is refused with 409 AlreadyExists and names the object."""
    await api.widget()
    refused = await refusal(api.widget(), AlreadyExists)
    assert refused.message == 'widgets.example.com "w" already exists'
    assert refused.status["details"] == {"name": "w", "group": "example.com", "kind": "widgets"}


async def test_get_of_a_missing_object_is_not_found(api: Api) -> None:
    """A missing object is a 404 with a Status that names it; the core group is left out of the name."""
    assert (await refusal(api.get("nobody"), NotFound)).message == 'widgets.example.com "nobody" not found'
    refused = await refusal(api.get("nobody", CONFIG_MAPS), NotFound)
    assert refused.message == 'configmaps "nobody" not found'
    assert refused.status["details"] == {"name": "nobody", "kind": "configmaps"}


async def test_create_in_a_missing_namespace_is_not_found(api: Api) -> None:
    """Creating into a namespace that does not exist is a 404 about the namespace, for built-in and custom kinds."""
    for resource, obj in ((CONFIG_MAPS, config_map()), (WIDGETS, widget())):
        refused = await refusal(api.client.create(resource, "no-such-namespace", obj), NotFound)
        assert refused.message == 'namespaces "no-such-namespace" not found'


async def test_list_of_a_missing_namespace_is_empty(api: Api) -> None:
    """Listing in a namespace that does not exist succeeds and is empty."""
    assert (await api.client.list(WIDGETS, "no-such-namespace"))["items"] == []


async def test_generate_name_adds_five_characters(api: Api) -> None:
    """A generateName yields the prefix and five characters of the documented alphabet, different each time."""
    names = set()
    for _ in range(3):
        obj = widget() | {"metadata": {"generateName": "gen-"}}
        created = await api.create(obj)
        assert created["metadata"]["generateName"] == "gen-"
        names.add(created["metadata"]["name"])
    assert len(names) == 3
    assert all(re.fullmatch(r"gen-[bcdfghjklmnpqrstvwxz2456789]{5}", name) for name in names)


async def test_generate_name_cuts_a_long_prefix(api: Api) -> None:
    """A generated name never exceeds 63 characters."""
    created = await api.create(widget() | {"metadata": {"generateName": "x" * 70 + "-"}})
    assert len(created["metadata"]["name"]) == 63


async def test_create_without_a_name_is_invalid(api: Api) -> None:
    """An object with neither name nor generateName is a 422 that says so."""
    await refusal(api.create(widget() | {"metadata": {}}), Invalid, "name or generateName is required")


async def test_name_must_be_dns_1123(api: Api) -> None:
    """A name with capitals or underscores is a 422 on metadata.name."""
    refused = await refusal(api.widget("No_Good"), Invalid, "RFC 1123 subdomain")
    assert [cause["field"] for cause in refused.status["details"]["causes"]] == ["metadata.name"]


async def test_namespace_of_body_and_url_must_agree(api: Api) -> None:
    """A body for another namespace than the URL's is a 400."""
    obj = widget()
    obj["metadata"]["namespace"] = "default"
    await refusal(api.create(obj), BadRequest, "does not match the namespace")


async def test_create_with_a_resource_version_is_refused(api: Api) -> None:
    """A new object must not carry a resourceVersion; a dry run, which stores nothing, does not mind."""
    obj = widget()
    obj["metadata"]["resourceVersion"] = "5"
    assert (await api.send("POST", f"{api.path()}?dryRun=All", obj)).status == 201
    answer = await api.send("POST", api.path(), obj)
    assert answer.status == 500
    assert b"resourceVersion should not be set on objects to be created" in answer.body


async def test_client_cannot_choose_uid_or_creation_time(api: Api) -> None:
    """uid, creationTimestamp and generation of a create body are replaced by the server's."""
    obj = widget()
    obj["metadata"] |= {"uid": "mine", "creationTimestamp": "2000-01-01T00:00:00Z", "generation": 77}
    meta = (await api.create(obj))["metadata"]
    assert meta["uid"] != "mine"
    assert not meta["creationTimestamp"].startswith("2000")
    assert meta["generation"] == 1


async def test_replace_with_the_current_resource_version(api: Api) -> None:
    """PUT with the current resourceVersion succeeds and moves resourceVersion and generation."""
    created = await api.widget(size=1)
    replaced = await api.client.replace(WIDGETS, api.ns, "w", created | {"spec": {"size": 2}})
    assert replaced["spec"]["size"] == 2
    assert int(replaced["metadata"]["resourceVersion"]) > int(created["metadata"]["resourceVersion"])
    assert replaced["metadata"]["generation"] == 2
    assert replaced["metadata"]["uid"] == created["metadata"]["uid"]


async def test_replace_with_an_old_resource_version_conflicts(api: Api) -> None:
    """PUT with a resourceVersion that is not the current one is a 409 Conflict and changes nothing."""
    created = await api.widget(size=1)
    await api.patch({"spec": {"size": 2}})
    refused = await refusal(api.client.replace(WIDGETS, api.ns, "w", created | {"spec": {"size": 3}}), Conflict)
    assert refused.reason == "Conflict"
    assert refused.message == (
        'Operation cannot be fulfilled on widgets.example.com "w": the object has been modified; please apply your '
        "changes to the latest version and try again"
    )
    assert (await api.get())["spec"]["size"] == 2


async def test_replace_of_a_custom_object_needs_a_resource_version(api: Api) -> None:
    """PUT of a custom object or a Lease without a resourceVersion is a 422."""
    await api.widget()
    refused = await refusal(api.client.replace(WIDGETS, api.ns, "w", widget(size=2)), Invalid)
    assert "metadata.resourceVersion" in refused.message
    assert "must be specified for an update" in refused.message
    lease = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "l"}, "spec": {}}
    await api.create(lease, LEASES)
    await refusal(api.client.replace(LEASES, api.ns, "l", lease | {"spec": {"holderIdentity": "x"}}), Invalid)


async def test_replace_of_a_config_map_may_be_unconditional(api: Api) -> None:
    """PUT of a ConfigMap without a resourceVersion overwrites."""
    await api.create(config_map(data={"a": "1"}), CONFIG_MAPS)
    replaced = await api.client.replace(CONFIG_MAPS, api.ns, "c", config_map(data={"b": "2"}))
    assert replaced["data"] == {"b": "2"}


async def test_replace_of_a_missing_object(api: Api) -> None:
    """PUT of a missing object is a 404, except that a missing Lease is created."""
    await refusal(api.client.replace(CONFIG_MAPS, api.ns, "c", config_map()), NotFound)
    lease = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "l"}, "spec": {}}
    answer = await api.send("PUT", api.path(LEASES, "l"), lease)
    assert answer.status == 201


async def test_replace_under_another_name_is_a_bad_request(api: Api) -> None:
    """PUT of an object whose name is not the URL's is a 400."""
    created = await api.widget()
    created["metadata"]["name"] = "other"
    refused = await refusal(api.client.replace(WIDGETS, api.ns, "w", created), BadRequest)
    assert refused.message == "the name of the object (other) does not match the name on the URL (w)"


async def test_replace_with_another_uid_conflicts(api: Api) -> None:
    """PUT with the uid of another object is a 409: it is meant for a namesake that is gone."""
    created = await api.widget()
    created["metadata"]["uid"] = "11111111-2222-3333-4444-555555555555"
    replacing = api.client.replace(WIDGETS, api.ns, "w", created)
    await refusal(replacing, Conflict, "Precondition failed: UID in precondition")


async def test_replace_that_changes_nothing_keeps_the_resource_version(api: Api) -> None:
    """PUT of the same object is not a write."""
    created = await api.widget(size=1)
    replaced = await api.client.replace(WIDGETS, api.ns, "w", created)
    assert replaced["metadata"]["resourceVersion"] == created["metadata"]["resourceVersion"]


async def test_generation_ignores_metadata(api: Api) -> None:
    """A change of labels moves the resourceVersion but not the generation."""
    await api.widget()
    labelled = await api.patch({"metadata": {"labels": {"a": "b"}}})
    assert labelled["metadata"]["generation"] == 1


async def test_dry_run_stores_nothing(api: Api) -> None:
    """dryRun=All answers like the real thing, refuses what would be refused, and leaves no trace."""
    created = await api.client.create(WIDGETS, api.ns, widget(), dry_run=True)
    assert created["metadata"]["uid"]
    assert created["spec"]["mode"] == "Fast"
    await refusal(api.get(), NotFound)
    await refusal(api.client.create(WIDGETS, api.ns, widget(size=1000), dry_run=True), Invalid)
    stored = await api.widget(size=1)
    changed = await api.json(
        "PATCH", api.path(name="w"), {"spec": {"size": 9}}, content_type="application/merge-patch+json", dryRun="All"
    )
    assert changed["spec"]["size"] == 9
    assert await api.get() == stored


async def test_label_values_are_limited(api: Api) -> None:
    """A label value with a slash or of 64 characters is a 422 on metadata.labels."""
    for value in ("a/b", "x" * 64):
        obj = widget()
        obj["metadata"]["labels"] = {"k": value}
        assert (await refusal(api.create(obj), Invalid)).status["details"]["causes"][0]["field"] == "metadata.labels"


async def test_annotation_that_is_a_number_is_refused(api: Api) -> None:
    """Annotations are strings: a JSON number in one is a 400 on create and a 422 on PATCH, not a conversion."""
    obj = config_map()
    obj["metadata"] = {"name": "c", "annotations": {"epoch": 5}}
    await refusal(api.create(obj, CONFIG_MAPS), BadRequest)
    await api.create(config_map(), CONFIG_MAPS)
    await refusal(api.patch({"metadata": {"annotations": {"epoch": 5}}}, "c", CONFIG_MAPS), Invalid)


async def test_annotation_keeps_any_text(api: Api) -> None:
    """An annotation with any text, such as a number beyond int32 or an empty one, is stored unchanged."""
    await api.create(config_map(), CONFIG_MAPS)
    for text in ("2147483648", "-1", "", "not a number"):
        patched = await api.patch({"metadata": {"annotations": {"epoch": text}}}, "c", CONFIG_MAPS)
        assert patched["metadata"]["annotations"]["epoch"] == text


async def test_namespace_has_its_name_as_label(api: Api) -> None:
    """Every namespace carries kubernetes.io/metadata.name and is Active."""
    namespace = await api.client.get(NAMESPACES, None, api.ns)
    assert namespace["metadata"]["labels"]["kubernetes.io/metadata.name"] == api.ns
    assert namespace["status"]["phase"] == "Active"


async def test_headless_service_stays_headless(api: Api) -> None:
    """A clusterIP of None survives create and cannot be changed; a Service without it gets an address."""
    meta = {"apiVersion": "v1", "kind": "Service"}
    headless = meta | {"metadata": {"name": "h"}, "spec": {"clusterIP": "None", "selector": {"a": "b"}}}
    assert (await api.create(headless, SERVICES))["spec"]["clusterIP"] == "None"
    await refusal(api.patch({"spec": {"clusterIP": "10.0.0.77"}}, "h", SERVICES), Invalid)
    plain = meta | {"metadata": {"name": "p"}, "spec": {"ports": [{"port": 80}]}}
    spec = (await api.create(plain, SERVICES))["spec"]
    assert spec["clusterIP"] not in ("", "None")
    assert spec["ports"] == [{"port": 80, "protocol": "TCP", "targetPort": 80}]
