"""Clients with Go types on a real kube-apiserver: another spelling is no change, and a real change is refused."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Final

import pytest
import pytest_asyncio

from images.build_once import MissingComponent
from inplace.common.kube.resources import JOBS
from testbed.api_client import ApiClient
from testbed.binaries import Binaries
from testbed.control_plane import ControlPlane
from testbed.group import Group, running_controller, running_group
from tests.cluster.conftest import unavailable
from tests.cluster.test_admission_real import wait_until_active
from tests.cluster.test_crd_real import install
from tests.cluster.typedclient.build import SPELLINGS, typed_client
from tests.deploy.admission import ABOUT_JOBSETS, policies
from tests.examples.test_manifests import FOLDER, MANIFESTS

pytestmark = pytest.mark.asyncio(loop_scope="session")

RUN_S_MAX: Final = 300.0  # the table takes half a minute on a quiet machine
Row = dict[str, Any]


@pytest.fixture(scope="module")
def program() -> Path:
    """Find or build the client with Go types."""
    try:
        return typed_client()
    except MissingComponent as error:
        unavailable(error)


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def table(binaries: Binaries, program: Path) -> AsyncIterator[list[Row]]:
    """Give the writes of the client with Go types and their results."""
    async with ControlPlane(binaries) as running, running.client() as client:
        await ready(client)
        yield await rows(program, running.kubeconfig)


async def ready(client: ApiClient) -> None:
    """Install the CRD and the policies, and wait for their effect."""
    await install(client)
    await client.create(policies(*ABOUT_JOBSETS))
    await wait_until_active(client)


async def rows(program: Path, kubeconfig: Path) -> list[Row]:
    """Run the program on all manifests."""
    manifests = [str(SPELLINGS), *(str(FOLDER / name) for name in MANIFESTS)]
    process = await asyncio.create_subprocess_exec(
        str(program), str(kubeconfig), "default", *manifests, stdout=asyncio.subprocess.PIPE
    )
    async with asyncio.timeout(RUN_S_MAX):
        output, _ = await process.communicate()
    assert process.returncode == 0
    found: list[Row] = json.loads(output)
    return found


async def test_what_is_no_change_is_accepted(table: list[Row], capsys: pytest.CaptureFixture[str]) -> None:
    """Label, suspend, resume, resize and a queue's writes of every manifest are accepted, created as YAML or typed.

    The client's types lack spec.scheduling, so it creates that example without it: applying the file is a change then.
    """
    allowed = [row for row in table if not row["forbidden"]]
    with capsys.disabled():
        print(f"\n{as_text(table)}")
    refused = [row for row in allowed if row["refusal"]]
    changes = [row for row in refused if "spec.scheduling: field is immutable" in row["refusal"]]
    assert {(row["manifest"], row["created"]) for row in changes} <= {("scheduling.yaml", "typed")}
    assert all(row["operation"].startswith("kubectl apply") for row in changes)
    assert [row for row in refused if row not in changes] == []


async def test_what_is_a_change_is_refused(table: list[Row]) -> None:
    """Changes of image, command, args, env, amount, backoffLimit, name and hostNetwork are refused with our message."""
    forbidden = [row for row in table if row["forbidden"]]
    assert len(forbidden) > 100
    assert [row for row in forbidden if "immutable" not in row["refusal"]] == []


async def test_a_second_write_is_no_new_generation(table: list[Row]) -> None:
    """When a client repeats its write, the stored object stays the same."""
    assert [row for row in table if row["operation"] == "label again" and row["respelled"]] == []


async def test_what_is_written_back_restarts_nobody(
    full_control_plane: ControlPlane, full_namespace: str, program: Path
) -> None:
    """Another spelling of a running group's template recreates no Job or Pod and causes no restart."""
    plane, namespace = full_control_plane, full_namespace
    async with running_group(plane, namespace) as group, running_controller(plane, namespace):
        await group.trains(1)
        before, jobs, pods = await group.jobset(), await jobs_of(group), {pod.uid for pod in group.pods.values()}
        process = await asyncio.create_subprocess_exec(
            str(program), "relabel", str(plane.kubeconfig), namespace, before["metadata"]["name"]
        )
        assert await process.wait() == 0
        after = await group.jobset()
        assert after["spec"] != before["spec"], "spelled as before: this test would show nothing"
        assert after["metadata"]["generation"] == before["metadata"]["generation"] + 1
        # The controller's next write carries the resourceVersion of its view: it has seen this write, or is refused.
        assert await group.epochs() == (1, 0)
        await group.restarts(2)
        assert [pod.lifts for pod in group.pods.values()] == [[1, 2]] * len(group.pods)
        assert ({pod.uid for pod in group.pods.values()}, await jobs_of(group)) == (pods, jobs)


async def jobs_of(group: Group) -> dict[str, tuple[str, int]]:
    """Return UID and generation of each Job."""
    listed = (await group.client.list(JOBS, group.namespace))["items"]
    return {job["metadata"]["name"]: (job["metadata"]["uid"], job["metadata"]["generation"]) for job in listed}


def as_text(table: list[Row]) -> str:
    """Return the table as text: a line for each manifest with the numbers of accepted and refused writes."""
    lines = [f"{'manifest':36} {'allowed':>8} {'refused':>8} {'forbidden':>10} {'accepted':>9}"]
    for manifest in dict.fromkeys(row["manifest"] for row in table):
        found = Counter((row["forbidden"], bool(row["refusal"])) for row in table if row["manifest"] == manifest)
        allowed, forbidden = found[False, False] + found[False, True], found[True, False] + found[True, True]
        lines.append(f"{manifest:36} {allowed:8} {found[False, True]:8} {forbidden:10} {found[True, False]:9}")
    return "\n".join(lines)
