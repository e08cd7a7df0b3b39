"""The epoch in a Pod's own file is exact, and an agent that cannot write the file goes on."""

from __future__ import annotations

from pathlib import Path

import pytest

from inplace.agent.settings.epoch_file import EpochFile
from tests.agent.process import environment, finished, process
from tests.agent.rig import Rig
from tests.agent.scripted_server import Exchange, ScriptedServer, accept_patch, jobset, until_patched

pytestmark = pytest.mark.asyncio


async def started_with(
    tmp_path: Path, content: str | None, previous: str, lists_max: int = 2
) -> tuple[ScriptedServer, list[object]]:
    """Run an agent process whose first list shows S = 1 and the next one S = 2, to its end at epoch 3."""
    path = tmp_path / "epoch"
    if content is not None:
        path.write_text(content)
    lists, watch = [jobset(1), jobset(2)], (until_patched(1), jobset(3, 2), jobset(3, 3))
    async with ScriptedServer(lists=lists[-lists_max:], watches=[watch]) as server:
        env = environment(tmp_path, server, PREVIOUS_EPOCH=previous, EPOCH_FILE=str(path))
        async with process(env) as child:
            code, lines = await finished(child)
    assert code == 88
    return server, [line["event"] for line in lines]


async def test_the_file_corrects_a_lagging_variable(tmp_path: Path) -> None:
    """With PREVIOUS_EPOCH=1, epoch 2 in the file and S = 1 in the cache, the agent does not join epoch 2 again."""
    server, events = await started_with(tmp_path, "2", previous="1")

    assert "consistent_view_wanted" in events
    assert [b'"3"' in patch.body for patch in server.requests("PATCH")] == [True]
    assert (tmp_path / "epoch").read_text() == "3"


async def test_a_garbled_file_means_unknown(tmp_path: Path) -> None:
    """Garbage in the file is logged, and the agent takes a consistent view."""
    server, events = await started_with(tmp_path, "two", previous="1", lists_max=1)

    assert "epoch_not_recalled" in events
    assert [b'"3"' in patch.body for patch in server.requests("PATCH")] == [True]
    assert "resourceVersion" not in server.listed[0].query


@pytest.mark.parametrize("with_head_start", [False, True])
async def test_the_epoch_is_kept_before_it_is_announced(tmp_path: Path, *, with_head_start: bool) -> None:
    """When the PATCH arrives at the server, the file already holds its epoch; also when it is announced ahead."""
    path, kept = tmp_path / "epoch", []

    async def answer(exchange: Exchange) -> None:
        kept.append(path.read_text())
        await accept_patch(exchange)

    script = (until_patched(1), jobset(5, 4), jobset(5, 5))
    async with ScriptedServer(lists=[jobset(4)], watches=[script], answer=answer) as server:
        assert await Rig(memory=EpochFile(str(path))).run(server, with_head_start=with_head_start) == 88
    assert kept == ["5"]


async def test_a_file_that_cannot_be_written_stops_nobody(tmp_path: Path) -> None:
    """When the file cannot be written, the agent logs one warning and announces."""
    rig = Rig(memory=EpochFile(str(tmp_path / "missing" / "epoch")))

    async with ScriptedServer(watches=[(jobset(0), until_patched(1), jobset(1, 0), jobset(1, 1))]) as server:
        assert await rig.run(server) == 88

    assert "EPOCH_FILE: cannot write" in rig.log.of("epoch_not_kept")[0]["message"]
    assert rig.barrier.lifts == [1]


@pytest.mark.parametrize(("content", "epoch"), [("1", 1), ("2147483647", 2147483647)])
async def test_a_kept_epoch_is_recalled(tmp_path: Path, content: str, epoch: int) -> None:
    """A stored epoch is read back."""
    file = EpochFile(str(tmp_path / "epoch"))
    assert file.recall() == (None, None)
    assert file.remember(epoch) is None
    assert (tmp_path / "epoch").read_text() == content
    assert file.recall() == (epoch, None)


@pytest.mark.parametrize("content", ["", "0", "-1", "2147483648", "٣", "1 2", "1\n", "9" * 100])
async def test_a_garbled_epoch_is_not_believed(tmp_path: Path, content: str) -> None:
    """A file with any other text gives no epoch."""
    path = tmp_path / "epoch"
    path.write_text(content, encoding="utf-8")
    epoch, problem = EpochFile(str(path)).recall()
    assert epoch is None
    assert problem is not None
    assert str(path) in problem
