"""Real agents, guards, a controller and workers as processes: a restart on request and a drain lose no step."""

from __future__ import annotations

import pytest

from tests.simulator.cluster.planned_stops import stop_twice


@pytest.mark.slow
@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("example", "depth"), [("train-supervisor.yaml", ""), ("train.yaml", "containers"), ("train.yaml", "process")]
)
async def test_planned_stops_lose_no_step(example: str, depth: str) -> None:
    """The workers of examples/train.py save when any of them was asked, in every mode that asks."""
    await stop_twice(example, depth)
