"""The annotations about the agent reach the part that adds it."""

from __future__ import annotations

import msgspec

from inplace.common.jobset.jobset import parse_jobset
from inplace.common.jobset.stored import JOBSET_CODEC
from inplace.common.wire import names as wire
from tests.controller.manifests import changed, jobset


def test_the_cache_keeps_them() -> None:
    """Of a JobSet's many annotations it keeps those that decide something."""
    given = {wire.AGENT: "cpu=100m,workers=worker", wire.RESTART: "containers"}
    manifest = jobset()
    manifest = changed(manifest, "metadata", manifest["metadata"] | {"uid": "u", "annotations": given | {"a": "b"}})
    assert parse_jobset(JOBSET_CODEC.decode(msgspec.json.encode(manifest))).annotations == given
