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
    """Another group is refused; spec.scheduling can be removed while the JobSet stays suspended."""
    namespace = await new_namespace(guarded)
    url = f"{jobsets(namespace)}/train"
    manifest = changed(changed(jobset(suspend=True), f"{POD_SPEC}.schedulingGroup", GANG), "spec.scheduling", {})
    stored = await guarded.post(jobsets(namespace), merged(manifest, namespace))
    other = changed(stored, f"{POD_SPEC}.schedulingGroup", {"podGroupName": "h"})
    assert "schedulingGroup.podGroupName: field is immutable" in str(
        await refusal(guarded.text("PUT", url, body=other))
    )
    after = json.loads(await guarded.text("PUT", url, body=changed(stored, "spec.scheduling", None)))
    assert "scheduling" not in after["spec"]
