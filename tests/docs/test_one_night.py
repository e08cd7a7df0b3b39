"""docs/one-night.md shows what commands print: the night is run again, with real workers."""

from __future__ import annotations

import pytest

from tests.docs.one_night import masked, outputs, shown


@pytest.mark.slow
@pytest.mark.asyncio
async def test_the_outputs_are_those_of_the_commands() -> None:
    """But for moments, seconds and the Pod that is the first to tell of the hang."""
    printed = await outputs()
    assert [(command, masked(output)) for command, output in printed] == [
        (command, masked(output)) for command, output in shown()
    ]


def test_names_and_steps_are_compared() -> None:
    """What is hidden is no more than moments and durations."""
    line = "  03:12:31  pod train-workers-0-11-s56pw was silent first: at step 29, quiet for 6.1 s"
    assert masked(line) == "  T  pod train-workers-0-11-s56pw was silent first: at step 29, quiet for S"


def test_a_day_is_no_difference() -> None:
    """The page was written on another day than the test runs."""
    assert masked('{"timestamp": "2026-11-28T03:12:31.123Z", "epoch": 1}') == '{"timestamp": "T", "epoch": 1}'
