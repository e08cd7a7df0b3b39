"""Every manifest of examples/ works under the admission policies."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest
import yaml

from inplace.common.jobset.jobset import parse_jobset
from inplace.common.kube.resources import JOBSETS, SERVICES
from testbed.go_programs import kubernetes_version
from testbed.waiting import eventually
from tests.cluster.features.stage import Stage
from tests.controller.crew import exists
from tests.examples.test_manifests import MANIFESTS, apply

pytestmark = pytest.mark.asyncio(loop_scope="session")

FOLDER: Final = Path(__file__).parents[3] / "examples"


async def has_service(stage: Stage, name: str) -> bool:
    """Return whether the headless Service exists."""
    return await exists(stage.client, SERVICES, stage.namespace, name)


@pytest.mark.parametrize("name", MANIFESTS)
async def test_examples(stage: Stage, name: str) -> None:
    """A second apply keeps the generation; the first Jobs and the Service exist, without problem or Warning."""
    found = yaml.safe_load_all((FOLDER / name).read_text())
    for manifest in [document for document in found if document["kind"] == JOBSETS.kind]:
        stage.name = manifest["metadata"]["name"]
        manifest["metadata"]["namespace"] = stage.namespace
        jobset = parse_jobset(await apply(stage.client, manifest))

        async def has_jobs() -> bool:
            return bool(await stage.jobs())

        if jobset.is_ours:
            await eventually(has_jobs, True)
            await stage.shows(restarts=0)
            if jobset.network.dns_hostnames:
                await eventually(lambda: has_service(stage, jobset.subdomain), True)  # noqa: B023 - awaited here
        assert (await apply(stage.client, manifest))["metadata"]["generation"] == 1
        assert await stage.words("SpecProblem") is None
    without_gangs = ("GangUnavailable",) if kubernetes_version() < "v1.37" else ()
    assert [told for told in await stage.warnings() if not told.startswith(without_gangs)] == []
