"""Answers to a request for stacks in the logs of a group, and the command that reads them."""

from __future__ import annotations

from typing import Any

from inplace.agent.report.log_line import log_line
from inplace.cli.stacks.stacks import StacksOptions, print_stacks
from inplace.common.wire.stacks import TAKEN, THREAD
from tests.cli.logs.room import START_S, Printed, Room, printed

REQUEST = int(START_S * 1000)
COLLECTIVE = (
    "all_reduce torch/distributed/distributed_c10d.py:2219",
    "train_step train.py:88",
    "<module> train.py:120",
)
LOADER = ("read dataset.py:88", "next_batch train.py:41", "<module> train.py:118")
Line = tuple[str, dict[str, Any]]


def stack(pid: int = 7, *, frames: tuple[str, ...] = COLLECTIVE, request: int = REQUEST, **more: Any) -> Line:
    """Return the line of a rank's main thread."""
    fields = {"request": request, "rank": "", "pid": pid, "step": 812, "by": "faulthandler", "state": "S"}
    fields |= {"thread": "main", "silent": False, "message": None}
    return THREAD, fields | more | {"frames": list(frames), "left_out": False}


def taken(request: int = REQUEST, ranks: int = 1, **more: Any) -> Line:
    """Return the line behind an answer."""
    return TAKEN, {"request": request, "ranks": ranks, "took_s": 0.1} | more


def answer(room: Room, pod: str, second: float, *lines: Line) -> None:
    """Let the parent of a Pod's worker answer."""
    for event, fields in lines:
        room.say(pod, second, log_line(START_S + second, "info", event, fields))


async def run(room: Room, *, now_s: float = START_S, **options: Any) -> Printed:
    """Run the command; return what it printed."""
    return await printed(print_stacks(room.connection, "train", StacksOptions(**options), now_s=now_s))
