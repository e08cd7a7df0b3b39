"""The annotation inplace.dev/restart-scope: a group or a replicatedJob restarts in place by itself (docs/adr/0023)."""

from __future__ import annotations

from typing import Final

import pytest

from inplace.common.wire import names as wire
from testbed.waiting import eventually
from tests.cluster.features.stage import Stage
from tests.controller.manifests import changed, jobset, replicated_job

pytestmark = pytest.mark.asyncio(loop_scope="session")

# The scopes of a (group g), b (group g) and c (group h).
SCOPES: Final = {"Group": ("g", "h"), "ReplicatedJob": ("a", "b", "c")}
GROUPS: Final = {"a": "g", "b": "g", "c": "h"}


@pytest.mark.parametrize("scope", SCOPES)
async def test_one_scope_restarts(stage: Stage, scope: str) -> None:
    """When a worker of c dies, only its scope's epochs grow; the JobSet's own epochs are never written."""
    jobs = [replicated_job(name, pods=1) | {"groupName": group} for name, group in GROUPS.items()]
    manifest = changed(jobset(jobs=jobs), "metadata.annotations", {wire.RESTART_SCOPE: scope})
    made = await stage.start(manifest)
    of_c = "h" if scope == "Group" else "c"
    assert made["train-c-0"]["spec"]["template"]["metadata"]["annotations"][wire.RESTART_SCOPE] == of_c
    await stage.make_pods()
    await stage.announce_all(1)

    async def epochs() -> dict[str, tuple[int, int]]:
        entries = (await stage.status()).get(wire.SCOPED_EPOCHS) or ()
        return {entry["name"]: wire.epochs_of_status(entry) for entry in entries}

    await eventually(epochs, dict.fromkeys(SCOPES[scope], (1, 0)))
    await stage.announce(stage.pods["train-c-0", 0], 2)

    async def restarted() -> tuple[int, dict[str, tuple[int, int]]]:
        found = await epochs()
        return found.pop(of_c)[0], found

    await eventually(restarted, (2, dict.fromkeys(set(SCOPES[scope]) - {of_c}, (1, 0))))
    assert await stage.epochs() == (0, 0)
    assert (await stage.status())["restarts"] == 0
