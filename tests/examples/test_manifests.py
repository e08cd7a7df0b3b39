"""Every manifest of examples/ is accepted, and the controller finds nothing wrong with it."""

from pathlib import Path

import pytest
import yaml

from common.kube.client import KubeObject
from common.kube.resources import JOBSETS, Resource
from controller.jobset import parse_jobset
from controller.problems import problems_of
from simulator.cluster.virtual_time import run
from tests.controller.crew import Crew
from tests.controller.rig import Rig

FOLDER = Path(__file__).parents[2] / "examples"
MANIFESTS = sorted(path.name for path in FOLDER.glob("*.yaml"))


def documents(name: str) -> list[KubeObject]:
    """Return the JobSets of one file; what else is in it needs a cluster."""
    found = yaml.safe_load_all((FOLDER / name).read_text())
    return [document for document in found if document["kind"] == JOBSETS.kind]


@pytest.mark.parametrize("name", MANIFESTS)
def test_an_example_is_accepted_and_its_first_jobs_appear(name: str) -> None:
    """The API server takes it; its first Jobs exist; no Warning is emitted; the spec has no problem."""

    async def scenario() -> None:
        rig = Rig()
        async with rig.running():
            for manifest in documents(name):
                created = await rig.admin.create(JOBSETS, "default", manifest)
                await rig.settle(2.0)
                assert list(problems_of(parse_jobset(created))) == []
                assert await Crew(rig.admin, "default", manifest["metadata"]["name"]).jobs()
            events = await rig.admin.list(Resource("events.k8s.io", "v1", "events", "Event"))
            assert [event["note"] for event in events["items"] if event["type"] == "Warning"] == []

    assert documents(name)
    run(scenario())
