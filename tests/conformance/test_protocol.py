"""HTTP: paths, methods, media types, discovery, reviews."""

from __future__ import annotations

import json

import pytest

from inplace.common.kube.resources import CONFIG_MAPS, EVENTS, SERVICE_ACCOUNTS, Resource
from tests.conformance.api import NEWEST_ONLY, Api
from tests.conformance.widgets import config_map, widget

pytestmark = pytest.mark.asyncio

CORE_EVENTS = Resource("", "v1", "events", "Event")


async def test_health_endpoints_say_ok(api: Api) -> None:
    """/livez, /readyz and /healthz answer ok."""
    for path in ("/livez", "/readyz", "/healthz"):
        answer = await api.send("GET", path, accept="*/*")
        assert (answer.status, answer.body) == (200, b"ok")


async def test_unknown_paths_are_not_found(api: Api) -> None:
    """A path that nothing serves is a 404: a Status in a built-in group, plain text elsewhere."""
    for path in ("/nothing", "/apis/nobody.example.com/v1", "/api/v2", f"/api/v1/namespaces/{api.ns}/gadgets"):
        assert (await api.send("GET", path)).status == 404, path
    answer = await api.send("GET", f"/apis/example.com/v1/namespaces/{api.ns}/gadgets")
    assert (answer.status, answer.body) == (404, b"404 page not found\n")


async def test_wrong_methods_are_not_allowed(api: Api) -> None:
    """POST to a built-in object and PUT to a built-in collection are 405s; PUT to a custom collection is a 400."""
    assert (await api.send("PUT", api.path(), widget())).status == 400
    for method, path in (("POST", api.path(CONFIG_MAPS, "c")), ("PUT", api.path(CONFIG_MAPS))):
        answer = await api.send(method, path, widget())
        assert answer.status == 405, (method, path)


async def test_create_without_a_namespace_is_not_allowed(api: Api) -> None:
    """A namespaced kind cannot be created at the cluster's path."""
    obj = config_map()
    assert (await api.send("POST", CONFIG_MAPS.path(), obj)).status == 405


@pytest.mark.parametrize("body", [b"{", b"", b"[]", b"42", b'{"kind":'], ids=repr)
async def test_garbage_bodies_are_bad_requests(api: Api, body: bytes) -> None:
    """A body that is not an object in JSON is a 400 with a Status."""
    for path in (api.path(), api.path(CONFIG_MAPS)):
        answer = await api.send("POST", path, body)
        assert answer.status == 400
        assert json.loads(answer.body)["reason"] == "BadRequest"


async def test_garbage_patch_is_a_bad_request(api: Api) -> None:
    """A merge patch that is not JSON is a 400."""
    await api.widget()
    answer = await api.send("PATCH", api.path(name="w"), b"{", content_type="application/merge-patch+json")
    assert answer.status == 400


async def test_unknown_content_type_is_unsupported(api: Api) -> None:
    """A body in a format that the server does not know is a 415, on create and on patch."""
    await api.widget()
    answer = await api.send("POST", api.path(), b"x", content_type="text/csv")
    assert answer.status == 415
    assert json.loads(answer.body)["reason"] == "UnsupportedMediaType"
    answer = await api.send("PATCH", api.path(name="w"), {"spec": {}}, content_type="application/json")
    assert answer.status == 415
    assert b"accepted media types include" in answer.body


async def test_unknown_accept_is_not_acceptable(api: Api) -> None:
    """A client that takes no format of the server's gets a 406."""
    await api.widget()
    assert (await api.send("GET", api.path(name="w"), accept="text/csv")).status == 406


async def test_yaml_is_spoken(api: Api) -> None:
    """Bodies and answers may be YAML."""
    text = b"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: c}\ndata: {a: b}\n"
    path = api.path(CONFIG_MAPS)
    answer = await api.send("POST", path, text, content_type="application/yaml", accept="application/yaml")
    assert answer.status == 201
    assert answer.headers["content-type"].startswith("application/yaml")
    assert b"kind: ConfigMap" in answer.body


async def test_status_codes_of_success(api: Api) -> None:
    """Create is 201, everything else 200."""
    answer = await api.send("POST", api.path(), widget())
    assert answer.status == 201
    created = json.loads(answer.body)
    assert (await api.send("GET", api.path(name="w"))).status == 200
    assert (await api.send("PUT", api.path(name="w"), created)).status == 200
    assert (await api.send("DELETE", api.path(name="w"))).status == 200


async def test_discovery_lists_custom_kinds(api: Api) -> None:
    """/apis and /apis/GROUP/VERSION list what is served, with subresources and short names."""
    groups = await api.json("GET", "/apis")
    assert "example.com" in [group["name"] for group in groups["groups"]]
    assert "batch" in [group["name"] for group in groups["groups"]]
    resources = (await api.json("GET", "/apis/example.com/v1"))["resources"]
    by_name = {resource["name"]: resource for resource in resources}
    assert by_name["widgets"]["kind"] == "Widget"
    assert by_name["widgets"]["namespaced"] is True
    assert by_name["widgets"]["shortNames"] == ["wd"]
    assert {"get", "list", "watch", "create", "update", "patch", "delete"} <= set(by_name["widgets"]["verbs"])
    assert set(by_name["widgets/status"]["verbs"]) == {"get", "patch", "update"}


async def test_aggregated_discovery(api: Api) -> None:
    """/apis answers kubectl's aggregated form in one document."""
    accept = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
    for path, group, plural in (("/api", "", "pods"), ("/apis", "batch", "jobs")):
        found = await api.json("GET", path, accept=accept)
        assert found["kind"] == "APIGroupDiscoveryList"
        (item,) = [item for item in found["items"] if item["metadata"].get("name", "") == group]
        (entry,) = [entry for entry in item["versions"][0]["resources"] if entry["resource"] == plural]
        assert entry["scope"] == "Namespaced"
        assert "status" in [sub["subresource"] for sub in entry["subresources"]]


@NEWEST_ONLY
async def test_version(api: Api) -> None:
    """/version names a version of Kubernetes 1.37."""
    version = await api.json("GET", "/version")
    assert (version["major"], version["minor"]) == ("1", "37")


async def test_access_reviews_answer(api: Api) -> None:
    """An administrator may patch Pods, says a SelfSubjectAccessReview."""
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": {"namespace": api.ns, "verb": "patch", "resource": "pods"}},
    }
    answer = await api.send("POST", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", review)
    assert answer.status == 201
    assert json.loads(answer.body)["status"]["allowed"] is True


async def test_local_reviews_are_asked_for_in_their_namespace(api: Api) -> None:
    """A LocalSubjectAccessReview has a path in its namespace, and none beside it."""
    place = {"namespace": api.ns, "verb": "patch", "resource": "pods"}
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "LocalSubjectAccessReview",
        "metadata": {"namespace": api.ns},
        "spec": {"user": "jane", "groups": ["system:masters"], "resourceAttributes": place},
    }
    root = "/apis/authorization.k8s.io/v1"
    answer = await api.send("POST", f"{root}/namespaces/{api.ns}/localsubjectaccessreviews", review)
    assert (answer.status, json.loads(answer.body)["status"]["allowed"]) == (201, True)
    assert (await api.send("POST", f"{root}/localsubjectaccessreviews", review)).status == 404


async def test_token_request_yields_a_token(api: Api) -> None:
    """A TokenRequest for a ServiceAccount is answered with a token and its expiry."""
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "agent"}}
    await api.create(account, SERVICE_ACCOUNTS)
    request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": 600}}
    answer = await api.send("POST", api.path(SERVICE_ACCOUNTS, "agent", "token"), request)
    assert answer.status == 201
    status = json.loads(answer.body)["status"]
    assert status["token"]
    assert status["expirationTimestamp"].endswith("Z")


async def test_events_are_served_in_both_groups(api: Api) -> None:
    """An events.k8s.io Event is a core Event too, with its fields under their core names."""
    event = {
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": {"name": "e"},
        "eventTime": "2026-01-01T00:00:00.000000Z",
        "reportingController": "example.com/c",
        "reportingInstance": "c-0",
        "action": "Restart",
        "reason": "Restarted",
        "type": "Normal",
        "note": "group restarted",
        "regarding": {"apiVersion": "v1", "kind": "Pod", "name": "p", "namespace": api.ns},
    }
    await api.create(event, EVENTS)
    core = await api.get("e", CORE_EVENTS)
    assert core["apiVersion"] == "v1"
    assert core["message"] == "group restarted"
    assert core["involvedObject"]["name"] == "p"
    assert core["reportingComponent"] == "example.com/c"
    query = {"fieldSelector": "involvedObject.name=p"}
    assert len((await api.client.list(CORE_EVENTS, api.ns, query=query))["items"]) == 1


async def test_post_without_kind_takes_it_from_the_url(api: Api) -> None:
    """A built-in object may leave out kind and apiVersion; a custom one may not."""
    answer = await api.send("POST", api.path(CONFIG_MAPS), {"metadata": {"name": "c"}})
    assert answer.status == 201
    assert json.loads(answer.body)["kind"] == "ConfigMap"
    assert (await api.send("POST", api.path(), {"metadata": {"name": "w"}, "spec": {}})).status == 400


async def test_invalid_dry_run_is_refused(api: Api) -> None:
    """The dryRun parameter takes the value All only."""
    answer = await api.send("POST", api.path(), widget(), dryRun="Maybe")
    assert answer.status == 422
