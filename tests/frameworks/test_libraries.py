"""Checkpoint libraries for PyTorch below inplace: no event costs more steps than the library has not saved."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.frameworks.libraries.harness import ALL_EVENTS, strike


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("name", "events"),
    [
        pytest.param("dcp", ("kill", "drain"), id="dcp-kill-drain"),
        pytest.param("dcp", ALL_EVENTS, marks=pytest.mark.long, id="dcp"),
    ],
)
async def test_a_library_gives_the_group_its_steps_back(tmp_path: Path, name: str, events: tuple[str, ...]) -> None:
    """After a kill and a lost Pod all go on from the newest step that is whole; a planned stop costs none."""
    await strike(tmp_path, name, events)
