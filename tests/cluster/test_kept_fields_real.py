"""What a client with older Go types drops when it writes a JobSet back, on a real kube-apiserver: nothing is lost."""

from __future__ import annotations

import json
from typing import Any, Final

import pytest

from testbed.api_client import ApiClient
from tests.cluster.test_admission_real import guarded, new_namespace
from tests.cluster.test_crd_real import jobsets, merged, refusal
from tests.controller.manifests import changed, jobset
from tests.deploy.crd_cases import SPEC
from tests.deploy.spec_cases import rule

pytestmark = pytest.mark.asyncio(loop_scope="session")

__all__ = ["guarded"]  # a fixture

GANG: Final = {"podGroupName": "g"}
POD_SPEC: Final = f"{SPEC}.template.spec"
RULES: Final = "spec.failurePolicy.rules"


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (f"{POD_SPEC}.schedulingGroup", GANG),
        ("spec.scheduling", {"schedulingPolicy": {"gang": {}}}),
        (RULES, [rule("a", "FailJob", setConditionReason="Bad")]),
    ],
)
async def test_a_client_with_older_types_loses_nothing(guarded: ApiClient, path: str, value: Any) -> None:
    """A field that a client did not know, and left out when it resumed the JobSet, stays."""
    namespace = await new_namespace(guarded)
    url = f"{jobsets(namespace)}/train"
    manifest = changed(jobset(suspend=True, strategy=None, failurePolicy={"maxRestarts": 1}), path, value)
    before = await guarded.post(jobsets(namespace), merged(manifest, namespace))
    resumed = changed(changed(before, "spec.suspend", False), f"{POD_SPEC}.nodeSelector", {"zone": "a"})
    written = changed(resumed, path, [rule("a", "FailJob")] if path == RULES else None)
    assert json.loads(await guarded.text("PUT", url, body=written))["spec"] == resumed["spec"]


async def test_a_gang_cannot_be_changed(guarded: ApiClient) -> None:
    """Another group of a pod template is refused."""
    namespace = await new_namespace(guarded)
    manifest = changed(jobset(suspend=True), f"{POD_SPEC}.schedulingGroup", GANG)
    stored = await guarded.post(jobsets(namespace), merged(manifest, namespace))
    other = changed(stored, f"{POD_SPEC}.schedulingGroup", {"podGroupName": "h"})
    assert "schedulingGroup.podGroupName: field is immutable" in str(
        await refusal(guarded.text("PUT", f"{jobsets(namespace)}/train", body=other))
    )


async def test_scheduling_changes_while_suspended_alone(guarded: ApiClient) -> None:
    """spec.scheduling changes and goes once the JobSet is suspended and its condition says so, and no sooner."""
    namespace = await new_namespace(guarded)
    url = f"{jobsets(namespace)}/train"
    stored = await guarded.post(jobsets(namespace), merged(jobset(suspend=True, scheduling={}), namespace))
    other = changed(stored, "spec.scheduling", {"schedulingPolicy": {"basic": {}}})
    told = str(await refusal(guarded.text("PUT", url, body=other)))
    assert "spec.scheduling: field is immutable unless the JobSet is suspended" in told
    condition = {"type": "Suspended", "status": "True", "reason": "a", "lastTransitionTime": "2026-01-01T00:00:00Z"}
    status = {"status": {"conditions": [condition | {"message": "suspended"}]}}
    await guarded.text("PATCH", f"{url}/status", body=status, content_type="application/merge-patch+json")
    wanted: dict[str, Any] | None
    for wanted in ({"schedulingPolicy": {"basic": {}}}, None):
        seen = changed(await guarded.get(url), "spec.scheduling", wanted)
        after = json.loads(await guarded.text("PUT", url, body=seen))
        assert after["spec"].get("scheduling") == wanted
