"""Whatever a progress file holds is read as one rank: by the grammar, or as one whose step nobody can tell."""

from __future__ import annotations

import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from inplace.common.protocol.bounds import BUSY_S_MAX, INT32_MAX, STEP_MAX
from inplace.common.wire.progress import BUSY_NAME_CHARACTERS_MAX, LINE_BYTES_MAX, UNKNOWN, ProgressLine, parse_progress

LINE = re.compile(
    rb"v1 (-|\d{1,10}) ([-?]|\d{1,12}) (\d{1,10})(?: (ended)| ([A-Za-z0-9_-]{1,16}) (\d{1,6}))? *\n", re.ASCII
)


def dumb(content: bytes) -> ProgressLine:
    """Read a content as the grammar's words say, by one regular expression."""
    if len(content) > 64:
        return UNKNOWN
    if number := re.fullmatch(rb"(\d{1,12})[ \t\r\n]*", content):
        return ProgressLine(step=int(number[1]))
    found = LINE.fullmatch(content)
    if found is None:
        return UNKNOWN
    epoch, step, pid, ended, name, seconds = found.groups()
    if epoch != b"-" and not 1 <= int(epoch) <= 2**31 - 1:
        return UNKNOWN
    if seconds is not None and not 1 <= int(seconds) <= 604_800:
        return UNKNOWN
    return ProgressLine(
        epoch=None if epoch == b"-" else int(epoch),
        step=int(step) if step.isdigit() else None,
        begun=step != b"-",
        pid=int(pid),
        busy=name.decode() if name else "",
        busy_s_max=int(seconds) if seconds else 0,
        ended=ended is not None,
    )


numbers = st.one_of(
    st.integers(0, 10**13).map(lambda number: b"%d" % number),
    st.sampled_from([b"-", b"?", b"0", b"007", b"-1", b"", b"1e3", b"2147483648", b"604801", b"\xd9\xa3"]),
)
names = st.sampled_from([b"checkpoint", b"ended", b"-", b"a" * 16, b"a" * 17, b"x y", b"\x00", b"?"])
lines = st.builds(
    lambda words, end: b" ".join(words) + end,
    st.tuples(st.sampled_from([b"v1", b"v2", b"V1"]), numbers, numbers, numbers)
    | st.tuples(st.just(b"v1"), numbers, numbers, numbers, names)
    | st.tuples(st.just(b"v1"), numbers, numbers, numbers, names, numbers),
    st.sampled_from([b"\n", b"   \n", b"", b"\n\n", b"\r\n", b"\t\n"]),
)
contents = st.one_of(lines, numbers.map(lambda number: number + b"\n"), st.binary(max_size=80))


@given(contents)
@example(b"")
@example(b"v1 3 1200 77 checkpoint 600\n")
@example(b"v1 2147483647 999999999999 9999999999 aaaaaaaaaaaaaaaa 604800\n")
@example(b"1" * 64)
@example(b"\x00" * 64)
def test_a_content_reads_as_the_grammar_says(content: bytes) -> None:
    """The second, dumb reading agrees on everything, and nothing raises."""
    assert parse_progress(content) == dumb(content)


@pytest.mark.parametrize(
    "content",
    [
        b"step 3\n",
        b"-3\n",
        b"+3\n",
        b"1" + b"0" * 30,
        b"3\n4\n",
        b"3\x00\n",
        b"3.0\n",
        b"1_000\n",
        "٣\n".encode(),
        b" 3\n",
        b"nan\n",
        b"v1\n",
        b"v1 \n",
        b"v2 3 4 5\n",
        b"v1 0 4 5\n",
        b"v1 3 4 5",
        b"v1 3 4 5\nmore\n",
        b"v1 3  4 5\n",
        b"v1 3 4 5 checkpoint\n",
        b"v1 3 4 5 checkpoint 0\n",
        b"v1 3 4 5 checkpoint 604801\n",
        b"v1 3 4 5 checkpoint 600 more\n",
        b"3" + b" " * 64,
    ],
)
def test_what_is_no_line_is_a_rank_that_lives(content: bytes) -> None:
    """Words, signs, huge numbers, NUL bytes, lines cut short: a step without number, of no certain epoch."""
    assert parse_progress(content) == UNKNOWN
    assert UNKNOWN.begun
    assert UNKNOWN.epoch is None


def test_the_longest_line_fits() -> None:
    """The bounds of the fields are those of 64 bytes."""
    words = (b"v1", b"%d" % INT32_MAX, b"%d" % STEP_MAX, b"9" * 10, b"a" * BUSY_NAME_CHARACTERS_MAX, b"%d" % BUSY_S_MAX)
    line = b" ".join(words) + b"\n"
    assert len(line) <= LINE_BYTES_MAX
    assert parse_progress(line).step == STEP_MAX
