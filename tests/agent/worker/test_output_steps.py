"""Steps are read from a worker's output as it passes, whatever else it writes; no pattern costs more than a search."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inplace.agent.settings.arguments import ArgumentsError, parse
from inplace.agent.worker.output_steps import OutputSteps
from inplace.common.wire.progress import parse_progress
from tests.agent.supervisor_rig import until
from tests.agent.test_guard import working


def seen(folder: Path, pattern: str, *chunks: bytes) -> int | None:
    """Return the step that an agent finds after these writes."""
    steps = steps_of(pattern)
    steps.begin(str(folder))
    for chunk in chunks:
        steps.see(3, chunk)
    return told(folder)


def steps_of(pattern: str) -> OutputSteps:
    """Return what looks for a pattern, as a guard's option has it."""
    options = parse(["guard", "--step-pattern", pattern, "--", "true"], {})
    assert options is not None
    assert options.step_pattern is not None
    return OutputSteps(options.step_pattern)


def told(folder: Path) -> int | None:
    """Return the step in the only file of a folder; None without one."""
    files = list(folder.iterdir())
    assert len(files) <= 1
    return parse_progress(files[0].read_bytes()).step if files else None


@pytest.mark.parametrize(
    ("pattern", "chunks", "step"),
    [
        ("step=%d", [b"step=1 loss=2\nstep=2 loss=1\n"], 2),
        ("step=%d", [b"step=1\nst", b"ep=1", b"2\n"], 12),
        ("step=%d", [b"step=7\nstep=x step= step=y\n"], 7),
        ("step=%d", [b"step=7"], None),
        ("Iteration %d/", [b"Iteration 12/500, Iteration 13 of 500"], 12),
        ("[%d", [b"epoch 3 [ 9] [41, loss"], 41),
        ("step=%d", [b"step=1234567890123\nother\n"], None),
        ("step=%d", [b"\xff\x00step=5\xff"], 5),
        ("Schritt ä%d", ["Schritt ä9 ".encode()], 9),
        ("step=%d", [b"x" * 200_000, b"step=3\n" + b"y" * 200_000], 3),
    ],
)
def test_the_newest_number_is_the_step(tmp_path: Path, pattern: str, chunks: list[bytes], step: int | None) -> None:
    """However the writes are cut; a number at the end may go on."""
    assert seen(tmp_path, pattern, *chunks) == step


@given(st.binary(max_size=400), st.binary(max_size=30), st.integers(0, 400))
def test_any_output_is_taken_in(before: bytes, after: bytes, cut: int) -> None:
    """A step in the midst of anything is found, wherever the writes are cut."""
    steps = steps_of("step=%d")
    found: list[int] = []
    steps._write = found.append  # type: ignore[assignment,method-assign]
    steps.begin("/nowhere")
    text = before + b" step=42 " + after.replace(b"step=", b"")
    for chunk in (text[:cut], text[cut:], b"\n"):
        steps.see(1, chunk)
    assert found[-1:] == [42]


def test_a_stream_that_is_made_to_be_slow_costs_a_few_searches(tmp_path: Path) -> None:
    """10 MB of what almost is a step take less than the 200 ms in which a worker of 50 MB/s writes them."""
    steps = steps_of("a" * 63 + "b%d")
    steps.begin(str(tmp_path))
    chunk = b"a" * 65_536
    began_s = time.process_time()
    for _ in range(10_000_000 // len(chunk)):
        steps.see(1, chunk)
    assert time.process_time() - began_s < 0.2


def test_two_streams_are_not_mixed(tmp_path: Path) -> None:
    """Half of a step on one, and half on the other, are none."""
    steps = steps_of("step=%d")
    steps.begin(str(tmp_path))
    steps.see(1, b"step=")
    steps.see(2, b"5\n")
    assert told(tmp_path) is None
    steps.see(1, b"6\n")
    assert told(tmp_path) == 6


def test_what_comes_after_a_run_is_none_of_its_steps(tmp_path: Path) -> None:
    """Nothing is written between two runs."""
    steps = steps_of("step=%d")
    steps.begin(str(tmp_path))
    steps.end()
    steps.see(1, b"step=5\n")
    assert told(tmp_path) is None


def test_a_folder_that_is_gone_ends_the_look(tmp_path: Path) -> None:
    """The output passes as ever, and the run's end tells why; the next run is looked at."""
    steps = steps_of("step=%d")
    steps.begin(str(tmp_path / "gone"))
    steps.see(1, b"step=5\n")
    (tmp_path / "gone").mkdir()
    steps.see(1, b"step=6\n")
    assert steps.end() == "No such file or directory"
    steps.begin(str(tmp_path / "gone"))
    steps.see(1, b"step=7\n")
    assert (told(tmp_path / "gone"), steps.end()) == (7, "")


@pytest.mark.parametrize("text", ["step=", "%d", "step=%d %d", "x" * 65 + "%d", "x%d" + "y" * 65])
def test_a_pattern_that_is_none_is_refused(text: str) -> None:
    """With what was expected."""
    with pytest.raises(ArgumentsError, match="--step-pattern: expected text of 1 to 64 bytes, %d, and text"):
        parse(["guard", "--step-pattern", text, "--", "true"], {})
    with pytest.raises(ArgumentsError, match="STEP_PATTERN: expected"):
        parse(["guard", "--", "true"], {"STEP_PATTERN": text})


@pytest.mark.asyncio
async def test_a_guard_s_worker_tells_its_steps_by_printing_them(tmp_path: Path) -> None:
    """In each run anew."""
    worker = "for n in range(9):\n    print(f'step={n}', flush=True)\nnote('main')\ntime.sleep(60)\n"
    async with working(tmp_path, worker, "--step-pattern", "step=%d") as (_, group):
        file = tmp_path / "progress" / f"pid-{group.child.pid}"
        await until(lambda: file.exists() and parse_progress(file.read_bytes()).step == 8, "the last step")
        assert file.stat().st_mode & 0o777 == 0o644
