"""Every manifest of examples/ is what it says, under the admission policies."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest
import yaml

from common.kube.resources import JOBSETS, SERVICES
from controller.jobset import parse_jobset
from tests.cluster.features.stage import Stage
from tests.cluster.waiting import eventually
from tests.controller.crew import exists

pytestmark = pytest.mark.asyncio(loop_scope="session")

FOLDER: Final = Path(__file__).parents[3] / "examples"
MANIFESTS: Final = sorted(path.name for path in FOLDER.glob("*.yaml"))


@pytest.mark.parametrize("name", MANIFESTS)
async def test_examples(stage: Stage, name: str) -> None:
    """It is accepted; its first Jobs and its Service exist; the controller finds no problem and warns of nothing."""
    found = yaml.safe_load_all((FOLDER / name).read_text())
    for manifest in [document for document in found if document["kind"] == JOBSETS.kind]:
        jobset = parse_jobset(await stage.submit(manifest))

        async def has_jobs() -> bool:
            return bool(await stage.jobs())

        if jobset.is_ours:
            await eventually(has_jobs, True)
            await stage.shows(restarts=0)
            if jobset.network.dns_hostnames:
                await eventually(lambda: exists(stage.client, SERVICES, stage.namespace, jobset.subdomain), True)  # noqa: B023
        assert await stage.words("SpecProblem") is None
    assert await stage.warnings() == []
