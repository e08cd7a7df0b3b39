"""Kube-apiserver takes and refuses the same files of tests/cases as the embedded server, with the same words."""

import asyncio

from testbed.binaries import Binaries
from tests.cases.__main__ import dry_runs
from tests.cases.case import cases, seen_by_embedded


def test_dry_runs(binaries: Binaries) -> None:
    """A dry run of each JobSet and of its Jobs ends as `api` of expected.toml says, and names the same fields."""
    real = asyncio.run(dry_runs())
    assert real == {case.name: seen_by_embedded(case.file) for case in cases()}
    assert {name: one.word for name, one in real.items()} == {case.name: case.expected["api"] for case in cases()}
