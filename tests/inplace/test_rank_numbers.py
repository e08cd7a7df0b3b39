"""A rank's own work is measured in medians, and a loss that is no number is counted; both fit into one line."""

from __future__ import annotations

import math
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import inplace
from inplace import rank_file, rank_numbers
from inplace.common.protocol.rank import RankNumbers as Numbers
from inplace.common.wire import rank_numbers as grammar
from inplace.common.wire.rank_numbers import parse_rank_numbers
from inplace.rank_file import RankFile
from inplace.rank_numbers import BEFORE_MIN, BLOCK, BLOCKS_MAX, NEWEST, RankNumbers

WARM = BLOCK + 1  # a step has a duration from the second one on


class Script:
    """A training script under a clock of its own."""

    def __init__(self) -> None:
        self.numbers = RankNumbers()
        self.now_s = 100.0
        self.count = 0
        self.lines: list[bytes] = []

    def step(self, took_s: float = 1.0, waited_s: float | None = None, loss: float | None = None) -> None:
        """Make a step."""
        self.now_s += took_s
        self.count += 1
        line = self.numbers.step(b"%d" % self.count, self.now_s, waited_s, loss)
        if line is not None:
            self.lines.append(line)

    def blocks(self, count: int, took_s: float = 1.0, waited_s: float | None = None) -> None:
        """Make so many blocks of equal steps."""
        for _ in range(count * BLOCK):
            self.step(took_s, waited_s)

    @property
    def seen(self) -> Numbers:
        """Return what the agent reads of the newest line."""
        found = parse_rank_numbers(b"v1 3 " + self.lines[-1], 3)
        assert found is not None
        return found


def test_a_block_is_written_once_it_is_complete() -> None:
    """The first one is left out: programs compile in it. From the second on there is news every BLOCK steps."""
    script = Script()
    for _ in range(WARM):
        script.step(30.0)
    assert script.lines == []
    script.blocks(3)
    assert len(script.lines) == 3
    assert script.seen == Numbers(recent_s=1.0)


def test_a_rank_that_slows_down_is_seen_once_the_newest_blocks_agree() -> None:
    """Some slow blocks are an accident, or heavier data. What was before is the median of the run."""
    script = Script()
    for _ in range(WARM):
        script.step()
    script.blocks(BEFORE_MIN + NEWEST)
    assert script.seen == Numbers(recent_s=1.0, before_s=1.0)
    script.blocks(NEWEST - 1, 3.0)
    assert script.seen == Numbers(recent_s=1.0, before_s=1.0)
    script.blocks(1, 3.0)
    assert script.seen == Numbers(recent_s=3.0, before_s=1.0)


def test_a_slow_step_now_and_then_does_not_count() -> None:
    """A third of the steps is ten times slower: the median does not move."""
    script = Script()
    for number in range(WARM + 8 * BLOCK):
        script.step(10.0 if number % 3 == 0 else 1.0)
    assert script.seen == Numbers(recent_s=1.0, before_s=1.0)


def test_waits_for_others_are_no_work() -> None:
    """The healthy ranks' steps are as long as the slow one's, and their own work stays what it was."""
    healthy, slow = Script(), Script()
    for script, work_s in ((healthy, 1.0), (slow, 3.0)):
        for _ in range(WARM):
            script.step(1.0, 0.0)
        script.blocks(BEFORE_MIN, 1.0, 0.0)
        script.blocks(NEWEST, 3.0, 3.0 - work_s)
    assert healthy.seen == Numbers(recent_s=1.0, before_s=1.0, waits=True)
    assert slow.seen == Numbers(recent_s=3.0, before_s=1.0, waits=True)


def test_times_with_and_without_waits_are_never_compared() -> None:
    """A script that tells its waits from some step on begins anew."""
    script = Script()
    script.blocks(BEFORE_MIN + 3, 3.0)
    script.blocks(2, 3.0, 2.0)
    assert script.seen == Numbers(recent_s=1.0, waits=True)


@pytest.mark.parametrize(("waited_s", "work_s"), [(-5.0, 2.0), (1e9, None), (math.inf, None), (math.nan, 2.0)])
def test_an_impossible_wait_is_cut(waited_s: float, work_s: float | None) -> None:
    """Work is between nothing and the whole step; a wait that is no number is no wait."""
    script = Script()
    for _ in range(WARM + BLOCK):
        script.step(2.0, waited_s)
    assert script.seen.recent_s == work_s


def test_the_same_step_again_is_no_step() -> None:
    """A rank that serves the others reports its last step while it waits for them."""
    script = Script()
    for _ in range(WARM + BLOCK):
        script.step(1.0)
        assert script.numbers.step(b"%d" % script.count, script.now_s + 0.5, None, None) is None
    assert script.seen.recent_s == 1.0


def test_a_step_beside_a_busy_phase_is_left_out() -> None:
    """Whatever the checkpoint takes, it is not the step's work."""
    script = Script()
    for _ in range(WARM + 3 * BLOCK):
        script.numbers.pause()
        script.step(50.0)
        script.step(1.0)
    assert script.seen.recent_s == 1.0


def test_bad_losses_in_a_row_are_counted_from_the_first() -> None:
    """They are written once a second at most, and so is that they are over."""
    script = Script()
    script.step(0.25, loss=0.5)
    for _ in range(25):
        script.step(0.25, loss=math.nan)
    assert script.seen == Numbers(bad=25, bad_since=2)
    assert len(script.lines) == 7
    for loss in (math.inf, -math.inf):
        script.step(1.0, loss=loss)
    assert script.seen == Numbers(bad=27, bad_since=2)
    script.step(1.0)  # a step without a loss says nothing
    assert script.seen == Numbers(bad=27, bad_since=2)
    script.step(1.0, loss=1e300)
    assert script.seen == Numbers()
    count = len(script.lines)
    script.step(1.0, loss=0.5)
    assert len(script.lines) == count


def test_a_long_run_keeps_few_blocks() -> None:
    """The old ones are thinned out, so the median is still that of the whole run."""
    script = Script()
    script.blocks(10 * BLOCKS_MAX)
    assert len(script.numbers._blocks) <= BLOCKS_MAX
    assert script.seen == Numbers(recent_s=1.0, before_s=1.0)


@given(st.integers(0, 2**40), st.floats(0.0, 1e12), st.booleans())
def test_every_line_is_read_again(bad: int, took_s: float, waits: bool) -> None:
    """Whatever the clock and the counts say, the line is within the bounds of its grammar."""
    script = Script()
    script.numbers._bad = bad
    for _ in range(WARM + (BEFORE_MIN + NEWEST) * BLOCK):
        script.step(took_s, 0.0 if waits else None, math.nan)
    script.step(took_s + 1.0, 0.0 if waits else None, math.nan)
    assert len(b"v1 2147483647 " + script.lines[-1]) <= rank_numbers.LINE_BYTES_MAX
    assert script.seen.waits is waits


def test_both_sides_have_the_same_bounds() -> None:
    """The module stands alone, so its numbers are written twice."""
    assert rank_numbers.LINE_BYTES_MAX == grammar.LINE_BYTES_MAX


def test_a_script_leaves_them_beside_its_rank(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Through the public call, with what scripts pass: floats, ints, strings of numbers, and things that are none."""
    for variable in ("LOCAL_RANK", "JAX_PROCESS_ID"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("INPLACE_PROGRESS_DIR", str(tmp_path))
    monkeypatch.setenv("INPLACE_EPOCH", "7")
    monkeypatch.setenv("RANK", "3")
    monkeypatch.setattr(rank_file, "_FILE", RankFile())
    rng = Random(0)
    for number in range(WARM + BLOCK):
        inplace.progress(number, loss=rng.random(), waited_s=0)
    seen = parse_rank_numbers((tmp_path / ".rank-3.numbers").read_bytes(), 7)
    assert seen is not None
    assert seen.waits
    assert parse_rank_numbers((tmp_path / ".rank-3.numbers").read_bytes(), 8) is None
    assert capsys.readouterr().err == ""
    strange: Any = ("much", object())
    for number, loss in enumerate(strange):
        inplace.progress(number, loss=loss)
    assert capsys.readouterr().err.count("loss: expected a number, saw str") == 1
