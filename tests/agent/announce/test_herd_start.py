"""When a Pod of a large group asks first: by its file, by the order to restart, and by the server's first answers."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from inplace.agent.announce.herd import KUBELETS_S, WINDOW_S, Herd
from inplace.agent.announce.herd_start import ORDER_AGE_S_MAX, HerdStart
from inplace.agent.announce.start_window import SLOW_S
from inplace.agent.report.metrics import AgentMetrics
from inplace.agent.report.phases import RestartPhases
from inplace.agent.start.epoch_file import NoMemory
from inplace.agent.start.prelude import head_start
from inplace.common.bare.record import replace
from inplace.common.kube.http.credentials import Credentials
from inplace.common.kube.http.early_connection import EarlyConnection
from tests.agent.process import environment, finished, process
from tests.agent.rig import CONFIG
from tests.agent.scripted_server import Exchange, ScriptedServer, jobset, until_patched

GROUP = Herd(1_000, 500, 0.5)
LATE = SLOW_S * 10
ROUNDING_S = 0.001


def start_of(tmp_path: Path, text: str | None = None, herd: Herd = GROUP, started_s: float = 100.0) -> HerdStart:
    """Return a start that found this text in its file."""
    path = tmp_path / "epoch.window"
    if text is not None:
        path.write_text(text, encoding="utf-8")
    return HerdStart(herd, started_s, str(path))


def test_a_first_start_has_the_slot_of_its_process(tmp_path: Path) -> None:
    """Without a file, and without EPOCH_FILE, the slot is the herd's."""
    first = start_of(tmp_path)
    assert first.recall() is None
    assert first.slot_s == GROUP.start_slot_s == HerdStart(GROUP, 100.0).slot_s


@pytest.mark.parametrize(("level", "share"), [(1, 1), (2, 2), (3, 4)])
def test_an_ordered_start_counts_from_the_order(tmp_path: Path, level: int, share: int) -> None:
    """What kubelet took since the order is a part of the slot."""
    start = start_of(tmp_path, f"v1 {level} 0 0 99.000")
    assert start.recall() is None
    assert start.slot_s == pytest.approx(share * GROUP.ordered_slot_s - 1.0)


def test_a_late_start_has_no_slot_left(tmp_path: Path) -> None:
    """A slow kubelet's Pod goes at once: its slot has passed."""
    start = start_of(tmp_path, f"v1 1 0 0 {100.0 - 2 * WINDOW_S:.3f}")
    assert start.recall() is None
    assert start.slot_s == 0.0


@pytest.mark.parametrize("moment_s", ["-", "100.500", f"{99.0 - ORDER_AGE_S_MAX:.3f}"])
def test_a_start_without_an_order_counts_from_its_process(tmp_path: Path, moment_s: str) -> None:
    """No order, one of another boot in the future, one too old to have made this start."""
    start = start_of(tmp_path, f"v1 2 0 0 {moment_s}")
    assert start.recall() is None
    assert start.slot_s == 2 * GROUP.start_slot_s


@pytest.mark.parametrize("text", ["", "garbage", "v1 9 0 0 -", "v1 1 0 0 -\n", "\u00e9", "v1 1 0 0 " + "9" * 10_000])
def test_garbage_means_the_default_window(tmp_path: Path, text: str) -> None:
    """It is reported with the file's path, and costs the window and nothing else."""
    start = start_of(tmp_path, text)
    problem = start.recall()
    assert problem is not None
    assert str(tmp_path / "epoch.window") in problem
    assert start.slot_s == GROUP.start_slot_s


def test_a_small_group_reads_and_writes_nothing(tmp_path: Path) -> None:
    """Up to GROUP_FREE Pods, and with START_WINDOW_S=0, the file is left alone, whatever stands in it."""
    for herd in (Herd(300, 299), replace(GROUP, window_s_max=0.0)):
        start = start_of(tmp_path, "garbage", herd)
        assert start.recall() is None
        assert start.slot_s == 0.0
        assert not start.put_off(LATE, 0.0)
        assert start.leave(200.0, announced=True, rejected=True, ordered=True) is None
        assert (tmp_path / "epoch.window").read_text() == "garbage"


def test_a_calm_restart_of_the_group_takes_the_window_away(tmp_path: Path) -> None:
    """The next start of this Pod goes at once; the moment of the order is kept for it."""
    start = start_of(tmp_path, "v1 1 0 0 99.000")
    start.recall()
    assert start.leave(300.0, announced=True, rejected=False, ordered=True) is None
    assert (tmp_path / "epoch.window").read_text() == "v1 0 0 0 300.000"
    following = start_of(tmp_path, started_s=301.0)
    following.recall()
    assert following.slot_s == 0.0


@pytest.mark.parametrize(("text", "announced"), [("v1 1 0 0 -", True), ("v1 1 0 0 99.000", False)])
def test_a_start_alone_teaches_nothing(tmp_path: Path, text: str, announced: bool) -> None:
    """Neither one that was not ordered with the group, nor one whose announcement was never taken."""
    start = start_of(tmp_path, text)
    start.recall()
    start.leave(300.0, announced=announced, rejected=False, ordered=False)
    assert (tmp_path / "epoch.window").read_text() == "v1 1 0 0 -"


def test_a_rejection_makes_the_window_longer(tmp_path: Path) -> None:
    """Even a start alone that was rejected knows that the server rejects."""
    start = start_of(tmp_path)
    start.recall()
    start.leave(300.0, announced=True, rejected=True, ordered=True)
    assert (tmp_path / "epoch.window").read_text() == "v1 2 2 2 300.000"


def test_a_late_answer_puts_a_start_without_a_window_off(tmp_path: Path) -> None:
    """To its slot of a first start, and the next start has a window; with a window nothing is put off."""
    start = start_of(tmp_path, "v1 0 0 0 99.000")
    start.recall()
    assert not start.put_off(SLOW_S / 2, 0.0)
    assert not start.put_off(LATE, LATE)
    assert start.put_off(LATE, 0.0)
    assert start.slot_s == GROUP.start_slot_s
    start.leave(300.0, announced=True, rejected=False, ordered=True)
    assert (tmp_path / "epoch.window").read_text() == "v1 1 2 2 300.000"
    following = start_of(tmp_path, started_s=301.0)
    following.recall()
    assert not following.put_off(LATE, 0.0)


def test_a_group_that_grew_very_large_keeps_the_default_window(tmp_path: Path) -> None:
    """From 4,000 Pods on no window is no gain: what a smaller group learned does not count."""
    large = Herd(4_000, 3_999, 0.5)
    start = start_of(tmp_path, "v1 0 0 0 99.000", large)
    start.recall()
    assert start.slot_s == pytest.approx(large.ordered_slot_s - 1.0)
    start.leave(300.0, announced=True, rejected=False, ordered=True)
    assert (tmp_path / "epoch.window").read_text() == "v1 1 0 0 300.000"


def test_a_full_disk_costs_the_lesson_only(tmp_path: Path) -> None:
    """The problem is returned, to be logged."""
    start = HerdStart(GROUP, 100.0, str(tmp_path / "missing" / "epoch.window"))
    start.recall()
    problem = start.leave(300.0, announced=True, rejected=False, ordered=True)
    assert problem is not None
    assert "cannot write" in problem


@pytest.mark.parametrize(
    ("size", "window_s"), [(300, 0.0), (400, 0.4 + KUBELETS_S), (1_000, WINDOW_S), (5_000, 0.75 + KUBELETS_S)]
)
def test_an_ordered_window_holds_what_kubelets_spread(size: int, window_s: float) -> None:
    """It is longer than a first start's by that, and no longer than the longest; none for a small group."""
    assert Herd(size).ordered_window_s == pytest.approx(window_s, abs=0.01)


def test_a_window_that_was_asked_for_is_kept_whole() -> None:
    """START_WINDOW_S beyond the default's longest is the ordered window too."""
    assert Herd(5_000, window_s_max=20.0).ordered_window_s == Herd(5_000, window_s_max=20.0).window_s == 5.0


def ahead_of(start: HerdStart, server: ScriptedServer) -> EarlyConnection | None:
    """Run the head start alone."""
    to = Credentials("127.0.0.1", server.port, tls=False)
    phases = RestartPhases(AgentMetrics(), now_s=lambda: 0.0)
    return head_start(replace(CONFIG, herd=GROUP), to, to.ssl_context(), NoMemory(), phases, start)


@pytest.mark.asyncio
async def test_a_late_list_is_kept_and_the_announcement_put_off(tmp_path: Path) -> None:
    """The head start ends with the list's answer and its connection; it announces nothing."""

    async def late(exchange: Exchange) -> None:
        await asyncio.sleep(LATE)
        await jobset(0)(exchange)

    start = start_of(tmp_path, "v1 0 0 0 99.000")
    start.recall()
    async with ScriptedServer(lists=[late]) as server:
        ahead = await asyncio.to_thread(ahead_of, start, server)
        assert ahead is not None
        assert [request.method for request, _ in ahead.outcomes] == ["GET"]
        assert (ahead.in_flight, start.slow, start.slot_s) == (None, True, GROUP.start_slot_s)
        assert [request.method for request in server.received] == ["GET"]
        ahead.close()


PLACE = {"GROUP_SIZE": "302", "GROUP_OFFSET": "100", "JOB_COMPLETION_INDEX": "50", "START_RATE_PER_S": "1"}


@pytest.mark.asyncio
async def test_a_process_leaves_its_lesson_to_the_next(tmp_path: Path) -> None:
    """The first restart counts from the order, and is calm; the next start waits for no slot."""
    file, texts = tmp_path / "epoch.window", []
    for epoch in (1, 2):
        script = (until_patched(1), jobset(epoch, epoch - 1), jobset(epoch, epoch))
        async with ScriptedServer(lists=[jobset(epoch - 1)], watches=[script]) as server:
            settings = {"EPOCH_FILE": str(tmp_path / "epoch"), "PREVIOUS_EPOCH": str(epoch - 1) if epoch > 1 else ""}
            async with process(environment(tmp_path, server, **settings, **PLACE)) as child:
                code, _ = await finished(child)
        assert code == 88
        texts.append(file.read_text().rpartition(" ")[0])
        assert float(file.read_text().rpartition(" ")[2]) > 0
    assert texts == ["v1 1 0 0", "v1 0 0 0"]


@pytest.mark.asyncio
async def test_a_garbled_file_is_logged(tmp_path: Path) -> None:
    """One warning with what was expected and seen; the agent starts with the default window."""
    (tmp_path / "epoch.window").write_text("two seconds")
    script = (until_patched(1), jobset(1, 0), jobset(1, 1))
    async with (
        ScriptedServer(lists=[jobset(0)], watches=[script]) as server,
        process(environment(tmp_path, server, EPOCH_FILE=str(tmp_path / "epoch"), **PLACE)) as child,
    ):
        code, lines = await finished(child)
    assert code == 88
    (warning,) = [line for line in lines if line["event"] == "start_window_not_recalled"]
    assert "saw 'two seconds'" in json.dumps(warning)
