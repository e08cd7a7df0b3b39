"""Log lines wait until the start is over, and come out in order."""

from __future__ import annotations

import io
import json
from itertools import count

import pytest

from inplace.agent.report.log import BUFFERED_LINES_MAX, LazyLog


def lines(stream: io.StringIO) -> list[dict[str, object]]:
    """Return the written lines."""
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def make(level: str = "info", style: str = "json") -> tuple[LazyLog, io.StringIO]:
    """Return a log on a stream, with a clock that counts seconds."""
    stream, seconds = io.StringIO(), count()
    return LazyLog(style, level, stream, lambda: float(next(seconds))), stream


def test_lines_come_out_in_order_with_the_time_they_were_written() -> None:
    """Lines are written at `load`, in the order of their times, and later lines follow."""
    log, stream = make()
    log.info("first", answer=42)
    log.warning("second")
    assert stream.getvalue() == ""
    log.load()
    log.load()
    log.error("third")
    assert lines(stream) == [
        {"timestamp": "1970-01-01T00:00:00.000Z", "level": "info", "event": "first", "answer": 42},
        {"timestamp": "1970-01-01T00:00:01.000Z", "level": "warning", "event": "second"},
        {"timestamp": "1970-01-01T00:00:02.000Z", "level": "error", "event": "third"},
    ]


@pytest.mark.parametrize(("level", "events"), [("debug", "diwe"), ("info", "iwe"), ("warning", "we"), ("error", "e")])
def test_the_level_is_a_floor(level: str, events: str) -> None:
    """Lines below LOG_LEVEL are not written, neither before nor after `load`."""
    log, stream = make(level)
    for _ in range(2):
        log.debug("d")
        log.info("i")
        log.warning("w")
        log.error("e")
        log.load()
    assert "".join(str(line["event"]) for line in lines(stream)) == events * 2


def test_the_console_style_is_for_readers() -> None:
    """LOG_FORMAT=console writes plain words, without colours."""
    log, stream = make(style="console")
    log.info("barrier_lifted", epoch=3)
    log.load()
    assert "barrier_lifted" in stream.getvalue()
    assert "epoch=3" in stream.getvalue()
    assert "\x1b" not in stream.getvalue()


def test_the_buffer_is_bounded_and_says_what_it_lost() -> None:
    """Above the bound the oldest lines are dropped, and the log says how many."""
    log, stream = make()
    for number in range(BUFFERED_LINES_MAX + 5):
        log.info("line", number=number)
    log.load()
    written = lines(stream)
    assert written[0]["event"] == "log_lines_dropped"
    assert written[0]["lines"] == 5
    assert written[1]["number"] == 5
    assert len(written) == BUFFERED_LINES_MAX + 1
