"""What an agent keeps of its worker's runs, in its own folder, and how its log tells it."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

import pytest

from inplace.agent.progress.kept_tails import KEPT_BYTES_MAX, RUNS_MAX, KeptTails
from inplace.agent.report.log_line import log_line
from inplace.cli.logs.lines import Tails
from inplace.common.wire.run_tail import HEAD_BYTES, TAIL, TAIL_BYTES, head_of, tail_file
from inplace.simulator.cluster.container_log import PIECE_BYTES_MAX
from tests.agent.rig import NotedLog


class Told:
    """One agent after the other of a Pod, and the runs of its worker."""

    def __init__(self, folder: Path) -> None:
        self.source, self.folder = folder / "progress", folder / "tails"
        self.source.mkdir()
        self.log = NotedLog()
        self.tails = self.agent()

    def agent(self, *, tells_each: bool = True) -> KeptTails:
        """Start the next agent, whose log is empty."""
        self.log = NotedLog()
        self.tails = KeptTails(str(self.source), str(self.folder), self.log, tells_each=tells_each)
        return self.tails

    def runs(self, epoch: int, text: bytes, *, number: int = 0) -> None:
        """Let a worker run."""
        content = head_of(epoch, epoch * 1000, len(text)) + text[-TAIL_BYTES:]
        (self.source / tail_file(number)).write_bytes(content)

    def joins(self, epoch: int, *, failed: bool = True) -> list[tuple[int, str]]:
        """Let the agent announce an epoch; return all that its log has told so far."""
        self.tails.collect(epoch, failed=failed)
        asyncio.run(self.tails.tell())
        found = Tails()
        for fields in self.lines():
            assert found.take(log_line(0.0, "warning", TAIL, fields).encode())
        return [(tail.epoch, tail.text) for tail in sorted(found.all(), key=lambda one: one.epoch)]

    def lines(self) -> list[dict[str, Any]]:
        """Return the fields of the lines that tell."""
        return [fields for _, event, fields in self.log.lines if event == TAIL]


@pytest.fixture
def told(tmp_path: Path) -> Told:
    """Give the first agent of a Pod."""
    return Told(tmp_path)


def test_an_agent_tells_each_run_that_failed(told: Told) -> None:
    """At once, and once; a run that was told to end is kept for the next agent."""
    assert told.joins(1) == []
    told.runs(1, b"first\n")
    assert told.joins(2) == [(1, "first\n")]
    told.runs(2, b"second\n")
    assert told.joins(3, failed=False) == [(1, "first\n")]
    assert told.joins(3) == [(1, "first\n")]
    told.agent()
    assert told.joins(4) == [(1, "first\n"), (2, "second\n")]


def test_a_supervisor_tells_what_its_container_does_not_have(told: Told) -> None:
    """Its worker writes into the same log."""
    told.agent(tells_each=False)
    told.runs(1, b"first\n")
    assert told.joins(2) == [(1, "first\n")]
    told.runs(2, b"second\n")
    assert told.joins(3) == [(1, "first\n")]
    told.agent(tells_each=False)
    assert told.joins(4) == [(1, "first\n"), (2, "second\n")]


def test_the_workers_of_several_containers_are_kept(told: Told) -> None:
    """Each has a file."""
    told.runs(1, b"a\n")
    told.runs(1, b"b\n", number=1)
    told.tails.collect(2, failed=True)
    asyncio.run(told.tails.tell())
    assert [fields["text"] for fields in told.lines()] == ["a\n", "b\n"]


@pytest.mark.attack
def test_a_worker_cannot_file_its_words_under_a_later_or_a_known_epoch(told: Told) -> None:
    """Its file says what it likes."""
    told.runs(2, b"true\n")
    assert told.joins(3) == [(2, "true\n")]
    for forged in (1, 2, 4, 99):
        told.runs(forged, b"forged\n")
        assert told.joins(4) == [(2, "true\n")]


@pytest.mark.attack
def test_no_link_is_followed_and_no_pipe_waited_for(told: Told, tmp_path: Path) -> None:
    """The secret of another file does not come into the log."""
    secret = tmp_path / "secret"
    secret.write_bytes(head_of(1, 1, 6) + b"secret")
    (told.source / tail_file(0)).symlink_to(secret)
    os.mkfifo(told.source / tail_file(1))
    (told.source / tail_file(2)).mkdir()
    assert told.joins(2) == []


def test_what_is_kept_has_a_bound(told: Told) -> None:
    """The newest failures stay; of what had to go, its epoch and size are still told."""
    count = KEPT_BYTES_MAX // TAIL_BYTES + 20
    for epoch in range(1, count + 1):
        told.runs(epoch, b"%06d\n" % epoch * 10_000)
        told.tails.collect(epoch + 1, failed=epoch % 10 != 0)
    sizes = [path.stat().st_size for path in told.folder.iterdir()]
    assert sum(-(-size // 4096) * 4096 for size in sizes) <= KEPT_BYTES_MAX
    told.agent()
    found = dict(told.joins(count + 1))
    assert len(found) == count
    gone = {epoch for epoch, text in found.items() if not text}
    assert gone > set(range(10, count, 10)), "who was told to end goes first"
    assert max(gone - set(range(10, count, 10))) < count // 2, "then the oldest"
    assert found[1], "but for the first failure: in a crash loop its words are not about other restarts"
    assert next(fields["left_out"] for fields in told.lines() if fields["epoch"] == 10) == 70_000


def test_so_many_runs_are_known(told: Told) -> None:
    """Also where each wrote next to nothing."""
    for epoch in range(1, RUNS_MAX + 10):
        told.runs(epoch, b"x\n")
        told.tails.collect(epoch + 1, failed=True)
    names = sorted(path.name for path in told.folder.iterdir())
    assert (len(names), names[0][:10], names[1][:10]) == (RUNS_MAX, "0000000001", "0000000011")


@pytest.mark.parametrize("text", ["x" * TAIL_BYTES, "\x1b[0m\n" * 9_000, "\U0001f600" * 16_000, "\n" * TAIL_BYTES])
def test_a_line_of_the_log_is_never_cut(told: Told, text: str) -> None:
    """Whatever the escapes: a runtime cuts lines at 16 KiB."""
    told.runs(1, text.encode())
    assert told.joins(2) == [(1, text)]
    lines = [log_line(0.0, "warning", TAIL, fields) for fields in told.lines()]
    assert max(map(len, lines)) < PIECE_BYTES_MAX
    assert len(lines) < 100


def test_a_full_folder_is_told(told: Told) -> None:
    """The agent goes on."""
    told.folder.write_text("no folder")
    told.runs(1, b"text\n")
    assert told.joins(2) == []
    assert [event for _, event, _ in told.log.lines] == ["tail_not_kept"]


def test_a_head_alone_says_nothing(told: Told) -> None:
    """A worker that wrote nothing, or one that is cut in the middle of its first write."""
    (told.source / tail_file(0)).write_bytes(head_of(1, 1, 0)[: HEAD_BYTES - 3])
    assert told.joins(2) == []
    told.runs(1, b"")
    assert told.joins(2) == []
