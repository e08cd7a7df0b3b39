"""The trace of one whole restart: two lives of one agent, in at most ten lines."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.agent.process import environment, finished, process
from tests.agent.scripted_server import ScriptedServer, jobset, until_patched

pytestmark = pytest.mark.asyncio

LINES_MAX = 10
DOCS = Path(__file__).parents[2] / "docs" / "agent.md"
LISTS = (jobset(0), jobset(1, 1, rv=30))
WATCHES = (
    (until_patched(1), jobset(1, 0, rv=20), jobset(1, 1, rv=30)),
    (until_patched(2), jobset(2, 1, rv=40), jobset(2, 2, rv=50)),
)


async def restart_lines(tmp_path: Path, **settings: str) -> list[dict[str, object]]:
    """Run an agent through two lives, as kubelet does, and return what both logged."""
    lines: list[dict[str, object]] = []
    async with ScriptedServer(lists=LISTS, watches=WATCHES) as server:
        for previous in ("", "1"):
            env = environment(tmp_path, server, EPOCH_FILE=str(tmp_path / "epoch"), PREVIOUS_EPOCH=previous, **settings)
            async with process(env) as child:
                code, said = await finished(child)
            assert code == 88
            lines += said
    return lines


async def test_one_restart_is_told_in_ten_lines(tmp_path: Path) -> None:
    """Ten lines say who started, the announced epoch, the lift, the cause of the restart and the phases."""
    lines = await restart_lines(tmp_path)
    assert len(lines) <= LINES_MAX
    life = ["agent_started", "announcement_accepted", "barrier_lifted", "restarting_in_place"]
    assert [line["event"] for line in lines] == life * 2
    assert [(line["pod"], line["previous"]) for line in lines[::4]] == [("train-w-0-0", None), ("train-w-0-0", 1)]
    assert [line["epoch"] for line in lines if "epoch" in line] == [1, 1, 1, 2, 2, 2]
    restarts = [line for line in lines if line["event"] == "restarting_in_place"]
    fields = ("verdict", "synced", "deprecated", "exit_code")
    assert [tuple(line[name] for name in fields) for line in restarts] == [
        ("deprecated", 1, 1, 88),
        ("deprecated", 2, 2, 88),
    ]
    assert re.fullmatch(r"v1,view=\d+,at=\d+", str(lines[1]["phases"]))
    assert re.fullmatch(r"v1,announce=\d+,barrier=\d+,lift=\d+,kubelet=\d+,view=\d+,at=\d+", str(lines[5]["phases"]))


async def test_a_disk_that_refuses_costs_the_numbers_it_held(tmp_path: Path) -> None:
    """An agent that cannot write its files logs that, announces, and restarts as usual."""
    async with ScriptedServer(lists=LISTS[:1], watches=WATCHES[:1]) as server:
        env = environment(tmp_path, server, EPOCH_FILE="/proc/inplace/epoch")
        async with process(env) as child:
            code, lines = await finished(child)
    assert code == 88
    events = [line["event"] for line in lines]
    assert events.count("announcement_accepted") == 1
    assert set(events) - {"agent_started", "announcement_accepted", "barrier_lifted", "restarting_in_place"} == {
        "epoch_not_kept"
    }


async def test_the_log_s_debug_level_stays_readable(tmp_path: Path) -> None:
    """At level debug one restart also fits ten lines."""
    assert len(await restart_lines(tmp_path, LOG_LEVEL="debug")) <= LINES_MAX
