"""The CRD on the embedded API server; tests/cluster/test_crd_real.py runs the same cases on a real one."""

from collections.abc import Iterator

import pytest

from inplace.common.kube.client import KubeClient
from inplace.common.kube.errors import Invalid, NotFound
from inplace.common.kube.resources import CUSTOM_RESOURCE_DEFINITIONS, JOBSETS, KubeObject
from inplace.common.wire import names as wire
from tests.controller.manifests import changed, jobset
from tests.deploy.crd_cases import CREATES, STATUSES, UPDATES, Create, StatusChange, Update, crd, crd_without_rules
from tests.deploy.old_objects import OLD_OBJECTS, STARTS_NOWHERE
from tests.deploy.refusals import client_of, create_refusal, refusal, update_refusal, words_missing
from tests.deploy.spec_cases import SPEC_CREATES, SPEC_UPDATES
from tests.deploy.template_defaults import TEMPLATE_DEFAULTS

JOB_SPEC = "spec.replicatedJobs[].template.spec"
WALKED_BY_NO_RULE = ((JOB_SPEC, "podFailurePolicy"), (JOB_SPEC, "scheduling"), (JOB_SPEC, "template"))

pytestmark = pytest.mark.virtual_time


def client() -> KubeClient:
    """Return a client of a new server that has the CRD."""
    return client_of(crd())


@pytest.mark.slow
@pytest.mark.parametrize("case", CREATES + SPEC_CREATES, ids=lambda case: case.claim)
async def test_create(case: Create) -> None:
    """A manifest is accepted, or refused with the path, the value needed and the way there."""
    assert words_missing(case.words, await create_refusal(client(), case)) == []


@pytest.mark.slow
@pytest.mark.parametrize("case", UPDATES + SPEC_UPDATES, ids=lambda case: case.claim)
async def test_update(case: Update) -> None:
    """A change is accepted, or refused because a running JobSet cannot follow it."""
    assert words_missing(case.words, await update_refusal(client(), case)) == []


@pytest.mark.parametrize("case", STATUSES, ids=lambda case: case.claim)
async def test_status(case: StatusChange) -> None:
    """S and D only grow, D up to S, in either encoding."""
    api = client()
    stored = await api.create(JOBSETS, "default", jobset())
    if case.before:
        stored |= {"status": case.before}
        stored = await api.replace(JOBSETS, "default", "train", stored, subresource="status")
    write = api.replace(JOBSETS, "default", "train", stored | {"status": case.after}, subresource="status")
    assert words_missing(case.words, await refusal(write)) == []


async def upgraded(manifest: KubeObject) -> KubeClient:
    """Return a client of a server that stored a JobSet, and then got our CRD."""
    api = client_of(crd_without_rules())
    await api.create(JOBSETS, "default", manifest)
    stored = await api.get(CUSTOM_RESOURCE_DEFINITIONS, None, crd()["metadata"]["name"])
    await api.replace(CUSTOM_RESOURCE_DEFINITIONS, None, crd()["metadata"]["name"], stored | {"spec": crd()["spec"]})
    return api


@pytest.mark.parametrize("name", OLD_OBJECTS)
async def test_an_object_older_than_the_rules_lives_on(name: str) -> None:
    """It can be labelled, get a status, lose its finalizer and go."""
    api = await upgraded(changed(changed(OLD_OBJECTS[name], "metadata.name", name), "metadata.finalizers", ["a.b/c"]))
    await api.patch(JOBSETS, "default", name, {"metadata": {"labels": {"a": "b"}}})
    await api.patch(JOBSETS, "default", name, {"status": {"restarts": 1}}, subresource="status")
    await api.delete(JOBSETS, "default", name)
    await api.patch(JOBSETS, "default", name, {"metadata": {"finalizers": []}})
    with pytest.raises(NotFound):
        await api.get(JOBSETS, "default", name)


async def test_an_object_that_lacks_a_required_field_gets_a_status_and_goes() -> None:
    """Its other fields cannot change any more: the server asks for the field, and no ratcheting excuses it."""
    api = await upgraded(STARTS_NOWHERE)
    await api.patch(JOBSETS, "default", "train", {"status": {"restarts": 1}}, subresource="status")
    with pytest.raises(Invalid, match=r"volumeMounts\[0\].mountPath: Required value"):
        await api.patch(JOBSETS, "default", "train", {"metadata": {"labels": {"a": "b"}}})
    await api.delete(JOBSETS, "default", "train")


async def test_defaults() -> None:
    """The CRD fills in upstream's defaults."""
    manifest = jobset(strategy=None)
    del manifest["spec"]["replicatedJobs"][0]["replicas"]
    manifest["spec"]["failurePolicy"] = {"maxRestarts": 1}
    stored = await client().create(JOBSETS, "default", manifest)
    assert stored["spec"]["failurePolicy"]["restartStrategy"] == "Recreate"
    assert stored["spec"]["replicatedJobs"][0]["replicas"] == 1
    assert stored["spec"]["replicatedJobs"][0]["groupName"] == "default"


def declared(schema: KubeObject, path: str = "") -> Iterator[tuple[str, KubeObject]]:
    """Yield each node of a schema with its path; items are "[]"."""
    yield path, schema
    for name, child in (schema.get("properties") or {}).items():
        yield from declared(child, f"{path}.{name}" if path else name)
    if "items" in schema:
        yield from declared(schema["items"], f"{path}[]")


def pod_schema() -> KubeObject:
    """Return the schema of a Pod's spec."""
    node: KubeObject = crd()["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
    for name in ("replicatedJobs", "template", "spec", "template", "spec"):
        node = (node["properties"][name] if "properties" in node else {}) or node
        node = node.get("items", node)
    return node


def test_the_defaults_inside_a_template() -> None:
    """They are those of upstream's CRD and of Kueue's, each at its place, and restartPolicy."""
    found = {path: node["default"] for path, node in declared(pod_schema()) if "default" in node}
    assert found == TEMPLATE_DEFAULTS | {"restartPolicy": "OnFailure"}


def test_a_template_keeps_what_no_schema_names() -> None:
    """Every object inside a template is open: a field of a newer Kubernetes survives."""
    objects = {path: node for path, node in declared(pod_schema()) if node.get("type") == "object"}
    assert len(objects) > 100
    assert [path for path, node in objects.items() if not node["x-kubernetes-preserve-unknown-fields"]] == []


async def test_a_field_of_a_newer_kubernetes_survives() -> None:
    """A field that nobody knows, at each level of a template, is stored as it came."""
    manifest = jobset()
    spec = manifest["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]
    spec |= {"new": 1, "volumes": [{"name": "a", "new": {"b": [1]}}]}
    spec["containers"][0] |= {"new": 1, "ports": [{"containerPort": 80, "protocol": "TCP", "new": 1}]}
    stored = await client().create(JOBSETS, "default", manifest)
    assert stored["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"] == spec


def columns() -> dict[str, KubeObject]:
    """Return the printer columns by title."""
    return {column["name"]: column for column in crd()["spec"]["versions"][0]["additionalPrinterColumns"]}


def test_the_agents_columns_are_there() -> None:
    """Every title that an agent's Table watch looks for is a priority-1 column."""
    titles = {
        wire.COLUMN_SYNCED,
        wire.COLUMN_DEPRECATED,
        wire.COLUMN_CURRENT,
        wire.COLUMN_PREVIOUS,
        wire.COLUMN_STRATEGY,
        wire.COLUMN_RESTART_IN_PLACE,
        wire.COLUMN_DISABLED,
        wire.COLUMN_UID,
        wire.COLUMN_SCOPED,
        wire.COLUMN_STALL,
        wire.COLUMN_STACKS,
        wire.COLUMN_NOTICES,
        wire.COLUMN_MEMBERS,
    }
    assert {title for title, column in columns().items() if column.get("priority") == 1} == titles
    assert columns()[wire.COLUMN_DISABLED]["jsonPath"] == (
        r".metadata.annotations['jobset\.sigs\.k8s\.io/disable-in-place-restart']"
    )
    assert columns()[wire.COLUMN_RESTART_IN_PLACE]["jsonPath"] == (
        r".metadata.annotations['inplace\.dev/restart-in-place']"
    )
    assert columns()[wire.COLUMN_STALL]["jsonPath"] == r".metadata.annotations['inplace\.dev/stall']"
    assert columns()[wire.COLUMN_STACKS]["jsonPath"] == r".metadata.annotations['inplace\.dev/stacks-requested']"
    assert columns()[wire.COLUMN_SYNCED]["jsonPath"] == f".status.{wire.SYNCED_EPOCH}"
    assert columns()[wire.COLUMN_DEPRECATED]["jsonPath"] == f".status.{wire.DEPRECATED_EPOCH}"
    assert columns()[wire.COLUMN_CURRENT]["jsonPath"] == f".status.{wire.CURRENT_ATTEMPT}"
    assert columns()[wire.COLUMN_PREVIOUS]["jsonPath"] == f".status.{wire.PREVIOUS_ATTEMPT}"


def test_every_list_that_a_rule_walks_is_bounded() -> None:
    """Each array that a rule may walk has maxItems: without it the API server refuses the rules for their cost."""

    def unbounded(schema: KubeObject, path: str) -> list[str]:
        found = [path] if schema.get("type") == "array" and "maxItems" not in schema else []
        for name, child in (schema.get("properties") or {}).items():
            if (path, name) not in WALKED_BY_NO_RULE:
                found += unbounded(child, f"{path}.{name}")
        return found + (unbounded(schema["items"], f"{path}[]") if "items" in schema else [])

    root = crd()["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    assert unbounded(root["properties"]["spec"], "spec") == []
