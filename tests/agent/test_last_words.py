"""The last words of a worker that failed travel with the PATCH that is sent anyway, in every mode with a guard."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from inplace.common.wire.last_line import told_line_of
from inplace.common.wire.names import LAST_LINE, WORKER_FAILED
from tests.agent.process import ROOT
from tests.agent.scripted_server import Exchange, accept_patch, refuses
from tests.agent.supervisor_rig import Supervised, supervised
from tests.agent.test_process_depth import pod

pytestmark = pytest.mark.asyncio

RAISES = f"sys.path.insert(0, {str(ROOT)!r})\nimport inplace\ninplace.progress(30)\n"
FIRST = RAISES + "raise RuntimeError('CUDA error, token=hunter2\\nmore')"
ELASTIC = (
    "import json\n"
    "with open(os.environ['TORCHELASTIC_ERROR_FILE'], 'w') as file:\n"
    "    json.dump({'message': {'message': 'ValueError: from torchelastic', 'extraInfo': {}}}, file)\n"
    "sys.exit(1)"
)
SHELL = ["/bin/sh", "-c", 'echo 1 >> $NOTES/started; echo "no shard 7 in /data" >&2; echo; exit 3']
LINE = "RuntimeError: CUDA error, token=***"


def line_in(told: dict[str, str]) -> str | None:
    """Return the line that a PATCH tells of the worker of epoch 1; the moment is of these minutes."""
    words = told_line_of(told.get(LAST_LINE, ""), 1)
    assert words is None or abs(words.at_s - time.time()) < 120
    return words.line if words is not None else None


async def second_patch(group: Supervised) -> dict[str, str]:
    """Start the worker, which fails; return the PATCH after the announcement of its epoch."""
    await group.start()
    assert await group.announced() == 2
    return group.server.annotations[1]


@pytest.mark.parametrize(
    ("worker", "line"),
    [
        (FIRST, LINE),
        (ELASTIC, "ValueError: from torchelastic"),
        (RAISES + "sys.exit(3)", "SystemExit: 3"),
        (RAISES + "print('Loss is nan, stopping', flush=True)\nsys.exit(1)", "Loss is nan, stopping"),
        (RAISES + "os._exit(3)", ""),
        (
            "raise RuntimeError('of a script that knows nothing of us')",
            "RuntimeError: of a script that knows nothing of us",
        ),
        (SHELL, "no shard 7 in /data"),
        ("print('step 12', flush=True)\nos.kill(os.getpid(), 9)", ""),
    ],
    ids=["exception", "torchelastic", "sys.exit", "words before it", "no exception", "plain script", "shell", "killed"],
)
async def test_a_supervisor_announces_them(tmp_path: Path, worker: str | list[str], line: str) -> None:
    """With the announcement of the next epoch, and no request is added."""
    async with supervised(tmp_path, worker, EPOCH_FILE=str(tmp_path / "epoch")) as group:
        assert line_in(await second_patch(group)) == line
        assert len(group.server.requests("PATCH")) == 2


async def test_they_are_those_of_one_epoch(tmp_path: Path) -> None:
    """A worker that is told to end says nothing, and the line of the epoch before is not sent again."""
    worker = f"if os.environ['INPLACE_EPOCH'] == '1':\n    {FIRST.replace(chr(10), chr(10) + '    ')}\ntime.sleep(60)"
    async with supervised(tmp_path, worker, EPOCH_FILE=str(tmp_path / "epoch")) as group:
        assert line_in(await second_patch(group)) == LINE
        group.show(2, 1)
        await group.noted("started", 2)
        group.show(2, 2)
        assert await group.announced() == 3
        assert LAST_LINE not in group.server.annotations[2]


async def test_a_users_own_error_file_is_left_alone(tmp_path: Path) -> None:
    """A container that sets TORCHELASTIC_ERROR_FILE keeps it."""
    own = str(tmp_path / "own")
    worker = "note('file', os.environ['TORCHELASTIC_ERROR_FILE'])\ntime.sleep(60)"
    async with supervised(tmp_path, worker, EPOCH_FILE=str(tmp_path / "epoch"), TORCHELASTIC_ERROR_FILE=own) as group:
        await group.start()
        assert await group.noted("file") == [own]


async def test_a_policy_that_is_older_than_the_line_costs_the_line(tmp_path: Path) -> None:
    """The announcement is sent again without it, at once."""

    async def answer(exchange: Exchange) -> None:
        is_new = LAST_LINE.encode() in exchange.request.body
        await (refuses(403, "Forbidden") if is_new else accept_patch)(exchange)

    async with supervised(tmp_path, FIRST, EPOCH_FILE=str(tmp_path / "epoch")) as group:
        group.server.answer = answer
        assert LAST_LINE in await second_patch(group)
        assert await group.announced() == 2
        assert LAST_LINE not in group.server.annotations[2]
        await group.said("last_line_refused")


async def test_an_agent_beside_a_guard_tells_them(tmp_path: Path) -> None:
    """Depth `process`: the worker is another container's, and its folder is shared."""
    async with pod(tmp_path, "note('epoch-' + os.environ['INPLACE_EPOCH'])\n" + FIRST) as group:
        await group.runs(1)
        assert line_in(await group.annotations()) == LINE


@pytest.mark.parametrize("refused", [False, True])
async def test_the_report_of_a_failure_carries_them(tmp_path: Path, *, refused: bool) -> None:
    """Depth `containers`: one PATCH before the exit, and a second one only where an older policy refuses the line."""

    async def answer(exchange: Exchange) -> None:
        is_new = LAST_LINE.encode() in exchange.request.body
        await (refuses(422, "Invalid") if is_new and refused else accept_patch)(exchange)

    worker = "note('epoch-' + os.environ['INPLACE_EPOCH'])\ntime.sleep(0.5)\n" + FIRST
    async with pod(tmp_path, worker, env={"RESTART_DEPTH": "containers"}) as group:
        group.server.answer = answer
        await group.runs(1)
        told = await group.annotations()
        assert line_in(told) == LINE
        assert WORKER_FAILED in told
        if refused:
            told = await group.annotations()
            assert WORKER_FAILED in told
            assert LAST_LINE not in told
        await group.left()
        assert len(group.server.requests("PATCH")) == 2 + refused
