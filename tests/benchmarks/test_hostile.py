"""The largest and the nastiest objects of a namespace do not stop the controller, on the simulator."""

from __future__ import annotations

import asyncio

import pytest

from benchmarks.hostile import TOGETHER, measure, parser

pytestmark = pytest.mark.slow


def test_no_object_of_one_namespace_holds_the_controller_up() -> None:
    """The benchmark's bounds hold under each attack, and under all of them together."""
    options = parser().parse_args(["--seconds", "2", "--jobsets", "200", "--pods", "3000"])
    rows = asyncio.run(measure(options))
    assert rows[-1].object == TOGETHER
    assert [row for row in rows if not row.is_within] == []
    assert all(row.created or row.refused for row in rows[1:])
