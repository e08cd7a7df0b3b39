"""Kube-apiserver takes and refuses the same files of tests/cases as the embedded server."""

from __future__ import annotations

import pytest

from testbed.control_plane import ControlPlane
from tests.cases.__main__ import ask
from tests.cases.case import cases

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def test_dry_runs(control_plane: ControlPlane) -> None:
    """A dry run of each JobSet ends as `api` of expected.toml says."""
    seen = await ask(control_plane)
    assert {name: one.word for name, one in seen.items()} == {case.name: case.expected["api"] for case in cases()}
