"""A rank that failed is told at once and ended soon if its exit handlers hang; one that succeeded may take its time."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest

from inplace.agent.worker_keeper import EXIT_S
from inplace.common.wire.last_line import told_line_of
from inplace.common.wire.names import LAST_LINE, PHASES, WORKER_FAILED
from inplace.common.wire.phases import exit_code_of
from inplace.common.wire.worker_failure import parse_failure
from tests.agent.process import ROOT
from tests.agent.supervisor_rig import supervised
from tests.agent.test_process_depth import pod

pytestmark = pytest.mark.asyncio

HANGS = f"""
import atexit
sys.path.insert(0, {str(ROOT)!r})
import inplace
def handler(seconds):
    note("handler", f"{{time.time():.3f}}")
    time.sleep(seconds)
    note("handled")
"""
FAILS = HANGS + "atexit.register(handler, SECONDS)\ninplace.progress(8)\nnote('epoch-' + os.environ['INPLACE_EPOCH'])\n"
ONCE = "if os.environ['INPLACE_EPOCH'] != '1': time.sleep(60)\n"


def failing(end: str, seconds: float) -> str:
    """Return a script whose rank ends in epoch 1, before an exit handler that takes so long."""
    return FAILS.replace("SECONDS", str(seconds)) + ONCE + end


@pytest.mark.parametrize(
    ("end", "code", "line"),
    [
        ("raise RuntimeError('loss is nan')", 1, "RuntimeError: loss is nan"),
        ("sys.exit('no data')", 1, "SystemExit: no data"),
        ("sys.exit(3)", 3, "SystemExit: 3"),
    ],
    ids=["exception", "text", "code"],
)
async def test_a_rank_that_failed_is_told_before_its_handlers_end(
    tmp_path: Path, end: str, code: int, line: str
) -> None:
    """With the exception, and the moment at which it ended the rank; then the handlers have EXIT_S seconds."""
    async with pod(tmp_path, failing(end, 3600)) as group:
        await group.runs(1)
        told = await group.annotations()
        failure, words = parse_failure(told[WORKER_FAILED]), told_line_of(told[LAST_LINE], 1)
        began = await group.guard.noted("handler")
        assert words is not None
        assert (failure.epoch, failure.code, words.line) == (1, code, line)
        assert failure.at_s == words.at_s == pytest.approx(float(began), abs=0.1)
        assert time.time() - float(began) < 2.0
        group.views.show(1, 1)
        assert await group.runs(2) == code
        assert EXIT_S <= time.time() - float(began) < EXIT_S + 4.0


async def test_handlers_that_end_are_waited_for(tmp_path: Path) -> None:
    """Logs that a failed rank flushes are whole, also when its group restarts meanwhile."""
    async with pod(tmp_path, failing("raise RuntimeError('x')", 1.5)) as group:
        await group.runs(1)
        assert WORKER_FAILED in await group.annotations()
        group.views.show(1, 1)
        assert await group.runs(2) == 1
        assert (tmp_path / "notes" / "handled").exists()


async def test_a_rank_that_succeeded_may_take_its_time(tmp_path: Path) -> None:
    """It uploads a checkpoint at its exit: nobody tells, and nobody ends it."""
    async with pod(tmp_path, failing("sys.exit(0)", EXIT_S + 1.5)) as group:
        await group.runs(1)
        await group.guard.noted("handler")
        await asyncio.sleep(EXIT_S + 0.5)
        assert not (tmp_path / "notes" / "handled").exists()
        await group.guard.noted("handled")
        assert len(group.server.requests("PATCH")) == 1


async def test_a_supervisor_does_the_same(tmp_path: Path) -> None:
    """It is its worker's parent; the next announcement has the rank's own code, not SIGKILL's."""
    worker = failing("raise RuntimeError('loss is nan')", 3600)
    async with supervised(tmp_path, worker, EPOCH_FILE=str(tmp_path / "epoch")) as group:
        await group.start()
        await group.server.until(lambda: len(group.server.requests("PATCH")) >= 2)
        assert parse_failure(group.server.annotations[1][WORKER_FAILED]).code == 1
        await group.server.until(lambda: len(group.server.requests("PATCH")) >= 3)
        assert group.server.annotations[2]["jobset.sigs.k8s.io/epoch"] == "2"
        assert exit_code_of(group.server.annotations[2][PHASES]) == 1


async def test_a_rank_that_failed_before_the_group_restarts_says_so(tmp_path: Path) -> None:
    """Its peer told first, and its worker was told to end: the announcement has the exception and its moment."""
    worker = failing("raise RuntimeError('loss is nan')", 3600)
    async with pod(tmp_path, worker) as group:
        await group.runs(1)
        await group.guard.noted("handler")
        group.views.show(1, 1)
        told = await group.annotations()
        while "jobset.sigs.k8s.io/epoch" not in told:
            told = await group.annotations()
        words = told_line_of(told[LAST_LINE], 1)
        assert words is not None
        assert (exit_code_of(told[PHASES]), words.line) == (1, "RuntimeError: loss is nan")


@pytest.mark.parametrize("end", ["raise KeyboardInterrupt", "raise RuntimeError('Process got signal: 15')"])
async def test_an_exception_because_of_the_stop_is_none_of_its_own(tmp_path: Path, end: str) -> None:
    """A handler of SIGTERM that raises, as torchrun's does, fails nobody."""
    worker = (
        f"sys.path.insert(0, {str(ROOT)!r})\nimport inplace\ninplace.progress(8)\n"
        f"def stop(*_):\n    {end}\nsignal.signal(signal.SIGTERM, stop)\n"
        "note('epoch-' + os.environ['INPLACE_EPOCH'])\ntime.sleep(60)"
    )
    async with pod(tmp_path, worker) as group:
        await group.runs(1)
        group.views.show(1, 1)
        assert await group.runs(2) is None
        assert LAST_LINE not in group.server.annotations[-1]
