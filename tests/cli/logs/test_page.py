"""docs/worker-logs.md shows the output of `inplace logs` as it is printed."""

from __future__ import annotations

import textwrap

import pytest

from inplace.agent.report.log_line import log_line
from inplace.common.wire import names as wire
from tests.cli.command import REPOSITORY
from tests.cli.logs.room import START_S, Room, at, room

pytestmark = pytest.mark.virtual_time

PAGE = (REPOSITORY / "docs" / "worker-logs.md").read_text()
FAILED = "train-workers-0-2-8wt6n"
TRACEBACK = (
    "Traceback (most recent call last):",
    '  File "/work/train.py", line 88, in step',
    "    loss.backward()",
    "RuntimeError: CUDA error: uncorrectable ECC error encountered",
)


async def a_bad_gpu() -> Room:
    """Return a group of four Pods, one of which met a bad GPU at step 812."""
    made = await room()
    found = {"pod": FAILED, "node": "node-7", "container": "worker", "exitCode": 1, "finishedAt": at(41)}
    last = {"epoch": 4, "trigger": "worker_exit", "startedAt": at(42), "firstFailure": found}
    await made.group(4, wire.status_of_epochs(4, 3) | {wire.LAST_GROUP_RESTART: last})
    names = ("train-workers-0-0-6p76h", "train-workers-0-1-tnnvg", FAILED, "train-workers-0-3-q2x4d")
    for index, name in enumerate(names):
        pod = await made.pod(index, name=name, epoch=4)
        made.say(pod, 40.9 + index / 1_000, f"step=811 rank={index}")
        if name == FAILED:
            made.say(pod, 41.204, *TRACEBACK)
        elif index == 1:
            made.say(pod, 41.188, "[rank1] watchdog: collective 811 has waited for 0.2 s")
        made.mark(
            pod, 41.25 if name == FAILED else 41.4, "worker_exited", epoch=3, exit_code=1 if name == FAILED else 143
        )
        made.mark(pod, 44, "worker_starting", epoch=4)
    return made


async def test_the_example_is_the_command_s_output() -> None:
    """The page shows it whole."""
    done = await (await a_bad_gpu()).run()
    assert textwrap.indent(f"$ inplace logs train\n{done.out}", " " * 4) in PAGE, done.out


async def test_the_mark_is_shown_as_it_is_written() -> None:
    """The page shows the line that begins an epoch."""
    assert log_line(START_S, "info", "worker_starting", {"epoch": 4}) in PAGE
