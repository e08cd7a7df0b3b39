"""Deletion: finalizers, grace, preconditions, dependents."""

from __future__ import annotations

import pytest

from inplace.common.kube.client import STRATEGIC_MERGE_PATCH
from inplace.common.kube.errors import Conflict, NotFound
from inplace.common.kube.resources import CONFIG_MAPS, JOBS, NAMESPACES, PODS, KubeObject
from tests.conformance.api import Api, refusal
from tests.conformance.widgets import WIDGETS, config_map, job, pod, widget

pytestmark = pytest.mark.asyncio

HELD = "example.com/held"


def _owned(name: str, owner: KubeObject, *, blocks: bool = False) -> KubeObject:
    reference = {
        "apiVersion": owner["apiVersion"],
        "kind": owner["kind"],
        "name": owner["metadata"]["name"],
        "uid": owner["metadata"]["uid"],
        "controller": True,
        "blockOwnerDeletion": blocks,
    }
    return config_map() | {"metadata": {"name": name, "ownerReferences": [reference]}}


async def _owner(api: Api, name: str = "owner") -> KubeObject:
    """Create an owner: a ConfigMap, because the real collector learns of a new custom kind only within 30 s."""
    return await api.create(config_map(name), CONFIG_MAPS)


async def _collector_has_seen_dependents(api: Api) -> None:
    """Return when the garbage collector knows of every ConfigMap created so far.

    The real collector sees writes late, and orphans or blocks only dependents that it has seen. It sees ConfigMaps in
    order: when it has collected a later one, it has seen the earlier ones.
    """
    nobody = config_map() | {"metadata": {"name": "nobody", "uid": "no-such-uid"}}
    await api.create(_owned("sentinel", nobody), CONFIG_MAPS)
    await api.gone("sentinel", CONFIG_MAPS)


async def test_delete_answers_with_success_and_the_uid(api: Api) -> None:
    """DELETE of a custom object is a Success Status that names the object deleted; a second one is a 404."""
    created = await api.widget()
    answer = await api.client.delete(WIDGETS, api.ns, "w")
    assert answer["kind"] == "Status"
    assert answer["status"] == "Success"
    assert answer["details"] == {
        "name": "w",
        "group": "example.com",
        "kind": "widgets",
        "uid": created["metadata"]["uid"],
    }
    await refusal(api.client.delete(WIDGETS, api.ns, "w"), NotFound)


async def test_delete_with_another_uid_conflicts(api: Api) -> None:
    """A uid precondition that does not hold is a 409 and deletes nothing; one that holds deletes."""
    created = await api.widget()
    namesakes = api.client.delete(WIDGETS, api.ns, "w", uid="11111111-2222-3333-4444-555555555555")
    await refusal(namesakes, Conflict, "the UID in the precondition")
    await api.client.delete(WIDGETS, api.ns, "w", uid=created["metadata"]["uid"])
    await api.gone()


async def test_delete_with_an_old_resource_version_conflicts(api: Api) -> None:
    """A resourceVersion precondition that does not hold is a 409."""
    created = await api.widget()
    await api.patch({"spec": {"size": 2}})
    options = {"preconditions": {"resourceVersion": created["metadata"]["resourceVersion"]}}
    assert (await api.send("DELETE", api.path(name="w"), options)).status == 409


async def test_finalizer_holds_a_deleted_object(api: Api) -> None:
    """DELETE of an object with a finalizer marks it; removing the last finalizer removes it."""
    obj = widget()
    obj["metadata"]["finalizers"] = [HELD]
    created = await api.create(obj)
    marked = await api.client.delete(WIDGETS, api.ns, "w")
    assert marked["metadata"]["deletionTimestamp"]
    assert marked["metadata"]["deletionGracePeriodSeconds"] == 0
    assert marked["metadata"]["generation"] == 2
    async with api.watch(resourceVersion=created["metadata"]["resourceVersion"]) as watch:
        assert (await watch.next_change())["type"] == "MODIFIED"
        await api.patch({"metadata": {"finalizers": None}})
        assert (await watch.next_change())["type"] == "DELETED"
    await api.gone()


async def test_no_new_finalizers_on_a_deleted_object(api: Api) -> None:
    """An object that is being deleted takes no new finalizers and cannot be revived."""
    obj = widget()
    obj["metadata"]["finalizers"] = [HELD]
    await api.create(obj)
    await api.client.delete(WIDGETS, api.ns, "w")
    refused = await api.send(
        "PATCH",
        api.path(name="w"),
        {"metadata": {"finalizers": [HELD, "example.com/more"]}},
        content_type="application/merge-patch+json",
    )
    assert refused.status == 422
    patched = await api.patch({"metadata": {"deletionTimestamp": None, "labels": {"a": "b"}}})
    assert patched["metadata"]["deletionTimestamp"]


async def test_unscheduled_pod_is_deleted_at_once(api: Api) -> None:
    """A Pod without a node has no kubelet to wait for."""
    await api.create(pod(schedulingGates=[{"name": "example.com/gate"}]), PODS)
    await api.client.delete(PODS, api.ns, "p")
    await refusal(api.get("p", PODS), NotFound)


async def test_bound_pod_is_deleted_gracefully(api: Api) -> None:
    """A Pod on a node gets a deletionTimestamp and its grace period, and goes when its kubelet deletes with grace 0."""
    created = await api.create(pod(nodeName="n1", terminationGracePeriodSeconds=17), PODS)
    marked = await api.client.delete(PODS, api.ns, "p")
    assert marked["kind"] == "Pod"
    assert marked["metadata"]["deletionGracePeriodSeconds"] == 17
    assert marked["metadata"]["deletionTimestamp"] > created["metadata"]["creationTimestamp"]
    still = await api.get("p", PODS)
    assert still["metadata"]["deletionTimestamp"] == marked["metadata"]["deletionTimestamp"]
    await api.client.delete(PODS, api.ns, "p", grace_period_s=0, uid=created["metadata"]["uid"])
    await refusal(api.get("p", PODS), NotFound)


async def test_grace_period_of_the_request_wins_and_only_shrinks(api: Api) -> None:
    """The gracePeriodSeconds of a DELETE replaces the Pod's; a later DELETE may shorten it, not lengthen it."""
    await api.create(pod(nodeName="n1"), PODS)
    assert (await api.client.delete(PODS, api.ns, "p", grace_period_s=20))["metadata"][
        "deletionGracePeriodSeconds"
    ] == 20
    assert (await api.client.delete(PODS, api.ns, "p", grace_period_s=5))["metadata"]["deletionGracePeriodSeconds"] == 5
    assert (await api.client.delete(PODS, api.ns, "p", grace_period_s=50))["metadata"][
        "deletionGracePeriodSeconds"
    ] == 5
    await api.client.delete(PODS, api.ns, "p", grace_period_s=0)


async def test_finished_pod_is_deleted_at_once(api: Api) -> None:
    """A Failed Pod has nothing left to stop, node or not."""
    await api.create(pod(nodeName="n1"), PODS)
    await api.patch({"status": {"phase": "Failed"}}, "p", PODS, kind=STRATEGIC_MERGE_PATCH, subresource="status")
    await api.client.delete(PODS, api.ns, "p")
    await refusal(api.get("p", PODS), NotFound)


async def test_finalizer_outlives_the_grace_period(api: Api) -> None:
    """A Pod with a finalizer stays after the kubelet's delete, until the finalizer is removed."""
    held = pod(nodeName="n1")
    held["metadata"]["finalizers"] = [HELD]
    await api.create(held, PODS)
    await api.client.delete(PODS, api.ns, "p")
    marked = await api.client.delete(PODS, api.ns, "p", grace_period_s=0)
    assert marked["metadata"]["deletionGracePeriodSeconds"] == 0
    await api.patch({"metadata": {"finalizers": None}}, "p", PODS)
    await refusal(api.get("p", PODS), NotFound)


async def test_background_deletion_collects_dependents(api: Api) -> None:
    """The owner is deleted at once, its dependents soon after; other objects stay."""
    owner = await _owner(api)
    await api.create(_owned("child", owner), CONFIG_MAPS)
    await api.create(config_map("other"), CONFIG_MAPS)
    await api.client.delete(CONFIG_MAPS, api.ns, "owner", propagation="Background")
    await refusal(api.get("owner", CONFIG_MAPS), NotFound)
    await api.gone("child", CONFIG_MAPS)
    await api.get("other", CONFIG_MAPS)


async def test_orphaned_dependents_lose_their_owner(api: Api) -> None:
    """Orphan removes the owner and the reference, and leaves the dependents."""
    owner = await _owner(api)
    await api.create(_owned("child", owner), CONFIG_MAPS)
    await _collector_has_seen_dependents(api)
    await api.client.delete(CONFIG_MAPS, api.ns, "owner", propagation="Orphan")
    await api.gone("owner", CONFIG_MAPS)
    assert not (await api.get("child", CONFIG_MAPS))["metadata"].get("ownerReferences")


async def test_foreground_deletion_waits_for_blocking_dependents(api: Api) -> None:
    """Foreground marks the owner with foregroundDeletion and removes it AFTER the dependents that block it."""
    owner = await _owner(api)
    child = _owned("child", owner, blocks=True)
    child["metadata"]["finalizers"] = [HELD]
    await api.create(child, CONFIG_MAPS)
    await _collector_has_seen_dependents(api)
    marked = await api.client.delete(CONFIG_MAPS, api.ns, "owner", propagation="Foreground")
    assert marked["metadata"]["finalizers"] == ["foregroundDeletion"]
    async with api.watch(CONFIG_MAPS, fieldSelector="metadata.name=child") as watch:
        event = await watch.next_change()
        while not event["object"]["metadata"].get("deletionTimestamp"):
            event = await watch.next_change()
    assert (await api.get("owner", CONFIG_MAPS))["metadata"]["deletionTimestamp"]
    await api.patch({"metadata": {"finalizers": None}}, "child", CONFIG_MAPS)
    await api.gone("child", CONFIG_MAPS)
    await api.gone("owner", CONFIG_MAPS)


async def test_dependent_of_a_missing_owner_is_collected(api: Api) -> None:
    """An object whose only owner does not exist is garbage."""
    owner = await _owner(api)
    await api.client.delete(CONFIG_MAPS, api.ns, "owner")
    await api.create(_owned("child", owner), CONFIG_MAPS)
    await api.gone("child", CONFIG_MAPS)


async def test_dependent_with_another_owner_stays(api: Api) -> None:
    """An object goes only when all its owners are gone; until then it loses the gone ones."""
    first, second = await _owner(api, "first"), await _owner(api, "second")
    child = _owned("child", first)
    other = _owned("child", second)["metadata"]["ownerReferences"][0] | {"controller": False}
    child["metadata"]["ownerReferences"].append(other)
    created = await api.create(child, CONFIG_MAPS)
    await api.client.delete(CONFIG_MAPS, api.ns, "first")
    version = created["metadata"]["resourceVersion"]
    async with api.watch(CONFIG_MAPS, resourceVersion=version, fieldSelector="metadata.name=child") as watch:
        event = await watch.next_change()
    assert event["type"] == "MODIFIED"
    assert [owner["name"] for owner in event["object"]["metadata"]["ownerReferences"]] == ["second"]


async def test_jobs_orphan_by_default(api: Api) -> None:
    """A DELETE of a Job without a propagation policy leaves its dependents, for history's sake."""
    owner = await api.create(job(), JOBS)
    await api.create(_owned("child", owner), CONFIG_MAPS)
    await _collector_has_seen_dependents(api)
    answer = await api.send("DELETE", api.path(JOBS, "j"))
    assert answer.status == 200
    await api.gone("j", JOBS)
    assert not (await api.get("child", CONFIG_MAPS))["metadata"].get("ownerReferences")


async def test_delete_collection_obeys_the_selector(api: Api) -> None:
    """DELETE of a collection deletes what the label selector picks."""
    for name, labels in (("a", {"go": "yes"}), ("b", {"go": "yes"}), ("c", {})):
        obj = widget(name)
        obj["metadata"]["labels"] = labels
        await api.create(obj)
    answer = await api.send("DELETE", api.path(), labelSelector="go=yes")
    assert answer.status == 200
    assert [item["metadata"]["name"] for item in (await api.client.list(WIDGETS, api.ns))["items"]] == ["c"]


async def test_deleted_namespace_takes_its_contents_along(api: Api) -> None:
    """Deleting a namespace marks it Terminating, empties it and removes it; creates in it are refused meanwhile."""
    name = f"{api.ns}-doomed"
    await api.client.create(NAMESPACES, None, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    held = widget()
    held["metadata"]["finalizers"] = [HELD]
    await api.client.create(WIDGETS, name, held)
    marked = await api.client.delete(NAMESPACES, None, name)
    assert marked["status"]["phase"] == "Terminating"
    refused = await api.send("POST", WIDGETS.path(name), widget("late"))
    assert refused.status == 403
    assert b"because it is being terminated" in refused.body
    await api.client.patch(WIDGETS, name, "w", {"metadata": {"finalizers": None}})
    await api.gone(name, NAMESPACES)
