"""A demo with every kind of failure leaves no panel empty, and the boards mark its restarts."""

from __future__ import annotations

import shutil

import pytest

from grafana import jobset
from testbed.grafana.evaluate import marks, panels, rules
from testbed.grafana.scene import FAILURES, scene
from tests.promtool import require

pytestmark = pytest.mark.asyncio


@pytest.mark.slow
async def test_no_panel_is_empty_in_a_demo() -> None:
    """Every panel has data, except for those of an API server; each restart is marked once, with its failure."""
    program = require("prometheus", shutil.which("prometheus"))
    async with scene(program, print, with_api_server=False) as played:
        answers = [answer async for answer in panels(played)] + [answer async for answer in rules(played)]
        marked = await marks(played, jobset.BOARD)
    assert [f"{answer.where}, {answer.what}: {answer.fault}" for answer in answers if answer.fault] == []
    assert len(marked) == len(FAILURES), marked
    assert sum(mark.text.startswith("no failure known") for mark in marked) == 1, marked  # somebody asked for it
