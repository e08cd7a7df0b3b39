"""Lines of a log as kubelet sends them: time, text within its bound, and the epoch that marks say."""

from __future__ import annotations

import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inplace.agent.report.log_line import log_line
from inplace.cli.logs.lines import LINE_BYTES_MAX, NS, LastLines, LogCutter, LogLine

MIB = 1 << 20


def cut(*chunks: bytes, epoch: int | None = None) -> list[LogLine]:
    """Return the lines of an answer."""
    cutter = LogCutter(epoch)
    return [line for chunk in chunks for line in cutter.feed(chunk)] + list(cutter.end())


@pytest.mark.parametrize(
    ("stamp", "at_ns"),
    [
        ("2026-01-01T00:00:01.000000005Z", NS + 5),
        ("2026-01-01T00:00:01.5Z", NS + NS // 2),
        ("2026-01-01T00:00:01Z", NS),
        ("2026-01-01T02:00:01.25+02:00", NS + NS // 4),
        ("2025-12-31T18:30:01.25-05:30", NS + NS // 4),
    ],
)
def test_a_stamp_is_read_in_any_zone(stamp: str, at_ns: int) -> None:
    """Kubelet writes its node's zone."""
    (line,) = cut(f"{stamp} step 1\n".encode())
    assert line == LogLine(1_767_225_600 * NS + at_ns, b"step 1")


@pytest.mark.parametrize("stamp", ["2026-13-01T00:00:01Z", "2026-01-01T00:00:61Z", "0000-01-01T00:00:01Z"])
def test_a_stamp_that_is_no_time_loses_no_line(stamp: str) -> None:
    """The line counts as the oldest."""
    assert cut(f"{stamp} x\n".encode()) == [LogLine(0, b"x")]


@given(st.lists(st.binary(max_size=60).map(lambda text: text.replace(b"\n", b"")), max_size=8), st.data())
def test_lines_do_not_depend_on_where_chunks_are_cut(texts: list[bytes], data: st.DataObject) -> None:
    """Whatever bytes the worker prints."""
    whole = b"".join(b"2026-01-01T00:00:01Z %b\n" % text for text in texts)
    places = sorted(data.draw(st.lists(st.integers(0, len(whole)), max_size=5)))
    chunks = [whole[start:end] for start, end in zip([0, *places], [*places, len(whole)], strict=True)]
    assert [line.text for line in cut(*chunks)] == texts


def test_a_line_of_a_gigabyte_takes_16_kib() -> None:
    """The rest is counted, and the next line is whole."""
    chunk = b"x" * MIB
    cutter = LogCutter()
    tracemalloc.start()
    lines = list(cutter.feed(b"2026-01-01T00:00:01Z "))
    for _ in range(1024):
        lines += cutter.feed(chunk)
    lines += cutter.feed(b"\n2026-01-01T00:00:02Z y\n")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert [(len(line.text), line.left_out) for line in lines] == [
        (LINE_BYTES_MAX, 1024 * MIB - LINE_BYTES_MAX),
        (1, 0),
    ]
    assert peak < 4 * MIB


def test_a_line_without_a_stamp_is_kubelet_s_own() -> None:
    """It is no line of the worker, and its words are kept."""
    cutter = LogCutter()
    assert list(cutter.feed(b"unable to retrieve container logs for containerd://0\n")) == []
    assert cutter.words == b"unable to retrieve container logs for containerd://0"


def printed(second: int, text: str) -> bytes:
    """Return a line of an answer."""
    return f"2026-01-01T00:00:{second:02d}Z {text}\n".encode()


CONSOLE = "2026-01-01T00:00:01.000Z [info     ] worker_starting                epoch=7"


def test_marks_say_the_epoch() -> None:
    """Of what follows, in both forms of the agent's log; without a mark it is the assumed one."""
    lines = [
        printed(0, "hello"),
        printed(1, log_line(1.0, "info", "worker_starting", {"epoch": 3})),
        printed(2, "step 1"),
        printed(3, log_line(3.0, "info", "worker_exited", {"epoch": 3, "exit_code": 1})),
        printed(4, CONSOLE),
        printed(5, "step 1"),
    ]
    assert [line.epoch for line in cut(*lines)] == [None, 3, 3, 3, 7, 7]
    assert cut(*lines, epoch=2)[0].epoch == 2
    assert [line.ended_epoch for line in cut(*lines)] == [None, None, None, 3, None, None]


def test_a_start_mark_of_an_older_agent_counts() -> None:
    """It comes just behind the start."""
    old = log_line(1.0, "info", "barrier_lifted", {"epoch": 4, "wait_s": 0.1})
    assert [line.epoch for line in cut(printed(1, old), printed(2, "x"))] == [4, 4]


@pytest.mark.attack
@pytest.mark.parametrize(
    ("second", "epoch", "is_true"),
    [
        pytest.param(16, 3, True, id="its own again"),
        pytest.param(16, 99, False, id="one that no agent lifted"),
        pytest.param(16, 4, False, id="the next one"),
        pytest.param(16, 2, False, id="an older one, of which the agent's log has lost the lift"),
        pytest.param(23, 4, True, id="the next one, whose lift the agent's log has late"),
        pytest.param(50, 3, False, id="the last one"),
    ],
)
def test_a_mark_counts_where_the_agent_lifted_its_epoch(second: int, epoch: int, is_true: bool) -> None:
    """A worker that prints another epoch's mark changes nothing."""
    lifts = {3: at_ns(5), 4: at_ns(32)}
    cutter = LogCutter(1, lifts)
    (line,) = cutter.feed(printed(second, log_line(1.0, "info", "worker_starting", {"epoch": epoch})))
    assert line.epoch == (epoch if is_true else 1)


def at_ns(second: int) -> int:
    """Return the time of such a line."""
    return 1_767_225_600 * NS + second * NS


@pytest.mark.parametrize(
    "text", ["worker_starting epoch=9", 'said "event": "worker_starting", "epoch": 9', "20 epoch=9"]
)
def test_a_worker_that_talks_of_marks_makes_none(text: str) -> None:
    """A mark begins as a line of the agent's programs does."""
    assert cut(printed(1, text))[0].epoch is None


def test_the_last_lines_keep_both_bounds() -> None:
    """So many lines, and so many bytes, but one line at least."""
    last = LastLines(3, 2 * 300)
    for size in (1, 1, 1, 1, 100, 10_000):
        last.append(LogLine(size, b"x" * size))
    assert [line.at_ns for line in last.all()] == [10_000]
    last = LastLines(3, MIB)
    for number in range(9):
        last.append(LogLine(number, b""))
    assert [line.at_ns for line in last.all()] == [6, 7, 8]
