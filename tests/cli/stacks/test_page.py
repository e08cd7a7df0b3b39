"""docs/hangs.md shows the output of `inplace stacks` as it is printed."""

from __future__ import annotations

import textwrap
from typing import Any

import pytest

from inplace.common.wire import names as wire
from tests.cli.command import REPOSITORY
from tests.cli.logs.room import room
from tests.cli.stacks.room import LOADER, answer, run, stack, taken

pytestmark = pytest.mark.virtual_time

PAGE = (REPOSITORY / "docs" / "hangs.md").read_text()
PODS, RANKS = 16, 8
NOTE = "its process is stopped or has ended, so it was not asked"


async def test_the_example_is_the_command_s_output() -> None:
    """128 ranks in 16 Pods: one reads data, one is stopped."""
    made = await room()
    await made.group(PODS, wire.status_of_epochs(1, 0))
    for index in range(PODS):
        pod = await made.pod(index, name=f"train-workers-0-{index}-{index:02x}c7d")
        lines = []
        for local in range(RANKS):
            rank = RANKS * index + local
            line = stack(100 + local, rank=f"rank-{rank}")
            if rank == 3:
                kernel: dict[str, Any] = {"by": "kernel", "state": "T", "message": NOTE, "silent": True}
                line = stack(100 + local, rank="rank-3", frames=("do_signal_stop", "get_signal"), **kernel)
            if rank == 17:
                line = stack(100 + local, rank="rank-17", frames=LOADER, step=811)
            lines.append(line)
        answer(made, pod, 0.3, *lines, taken(ranks=RANKS))
    done = await run(made)
    assert textwrap.indent(f"$ inplace stacks train\n{done.out}", " " * 4) in PAGE, done.out
