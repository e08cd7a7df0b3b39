"""`python -m conformance` on a real control plane: our controller and agent, upstream's, and an idle program."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Final

import pytest
import pytest_asyncio

from conformance import agents, controllers
from images.build_once import MissingComponent
from testbed.binaries import Binaries
from testbed.control_plane import ControlPlane
from testbed.go_programs import AGENT, UPSTREAM
from testbed.kube_client import kube_client
from testbed.upstream.controller import upstream_controller
from tests.cluster.conftest import unavailable
from tests.cluster.features.served import serving
from tests.cluster.test_crd_real import install

pytestmark = pytest.mark.asyncio(loop_scope="session")

ROOT: Final = Path(__file__).parents[2]
README: Final = (ROOT / "conformance" / "README.md").read_text()
OURS: Final = f"{sys.executable} -m inplace.agent"
UPSTREAM_FAILS: Final = {
    "a-foreign-pod-does-not-count",
    "a-namesakes-pods-do-not-count",
    "garbage-of-one-pod-stops-nobody",
}
PATIENCE_S: Final = "45"  # the Job controller waits 10 s before it replaces a Pod, and longer on a busy machine


async def failed(plane: ControlPlane, *words: str, patience_s: str = PATIENCE_S) -> set[str]:
    """Run the suite as its users do; return the cases that failed."""
    command = ("-m", "conformance", "--kubeconfig", str(plane.kubeconfig), "--patience", patience_s, "--json")
    process = await asyncio.create_subprocess_exec(
        sys.executable, *command, *words, cwd=ROOT, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    out, err = await process.communicate()
    assert process.returncode in (0, 1), err.decode()
    found = {one["case"] for one in json.loads(out.splitlines()[0]) if one["problem"]}
    assert process.returncode == bool(found)
    return found


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def plane(binaries: Binaries) -> AsyncIterator[ControlPlane]:
    """Run a control plane with our CRD, whose Job controller makes Pods."""
    async with ControlPlane(binaries, with_controllers=True) as running:
        async with running.client() as api:
            await install(api)
        yield running


async def test_ours_keep_the_contract(plane: ControlPlane) -> None:
    """Our controller and our agent pass every case."""
    async with kube_client(plane.kubeconfig) as admin, serving(plane, admin):
        assert tuple(await asyncio.gather(failed(plane), failed(plane, "--agent", OURS))) == (set(), set())


async def test_upstreams_fail_where_the_page_says_so(binaries: Binaries) -> None:
    """Upstream's agent passes every case, and its controller all but those that the page names."""
    try:
        agent = UPSTREAM.build() / AGENT
    except MissingComponent as error:
        unavailable(error)
    async with ControlPlane(binaries, with_controllers=True) as other, upstream_controller(other):
        found = tuple(await asyncio.gather(failed(other), failed(other, "--agent", str(agent))))
    assert found == (UPSTREAM_FAILS, set())


async def test_a_program_that_does_nothing_passes_nothing(plane: ControlPlane) -> None:
    """Each case of an agent asks for something."""
    assert await failed(plane, "--agent", "/bin/true", patience_s="1") == set(agents.CASES)


async def test_a_case_of_the_other_half_is_refused() -> None:
    """It would ask for nothing, and nothing would fail."""
    words = ("-m", "conformance", "--kubeconfig", "none", "--case", next(iter(agents.CASES)))
    process = await asyncio.create_subprocess_exec(sys.executable, *words, cwd=ROOT, stderr=asyncio.subprocess.PIPE)
    _, err = await process.communicate()
    assert (process.returncode, "expected cases of a controller" in err.decode()) == (2, True)


async def test_the_page_has_each_case() -> None:
    """With what it asks for, and who fails it."""
    for name, case in (*controllers.CASES.items(), *agents.CASES.items()):
        words = str(case.__doc__).strip().rstrip(".")
        upstream = "fails" if name in UPSTREAM_FAILS else "passes"
        assert f"| `{name}` | {words} | passes | {upstream} |" in README
