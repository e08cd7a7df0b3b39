"""What a rank saved is read strictly: a line of the grammar, or nothing."""

from __future__ import annotations

import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from inplace.common.protocol.bounds import INT32_MAX, STEP_MAX
from inplace.common.wire.saved import LINE_BYTES_MAX, SavedLine, parse_saved, step_word, steps_word

NUMBER = r"(?:0|[1-9][0-9]{0,11})"
LINE = re.compile(rf"v1 ([1-9][0-9]{{0,9}}) (-|{NUMBER}(?:\.{NUMBER}){{0,3}}) (-|{NUMBER}) *\n".encode())


def dumb(content: bytes) -> SavedLine | None:
    """Read the line by one regular expression."""
    match = LINE.fullmatch(content)
    if match is None or len(content) > LINE_BYTES_MAX or int(match[1]) > INT32_MAX:
        return None
    local = [int(step) for step in match[2].split(b".")] if match[2] != b"-" else []
    if local != sorted(set(local), reverse=True):
        return None
    return SavedLine(int(match[1]), tuple(local), None if match[3] == b"-" else int(match[3]))


words = st.lists(st.sampled_from([b"v1", b"7", b"-", b"200.100", b"100.200", b"0", b"01", b" ", b"5."]), max_size=6)


@given(st.one_of(st.binary(max_size=90), words.map(b" ".join).map(lambda line: line + b"\n")))
@example(b"v1 7 4200.4199 4000\n")
@example(b"v1 7 4.3.2.1.0 -\n")
@example(b"v1 2147483648 - -\n")
@example(b"v1 7 - 1000000000000\n")
def test_a_content_reads_as_the_grammar_says(content: bytes) -> None:
    """The second, dumb reading agrees on everything, and nothing raises."""
    assert parse_saved(content) == dumb(content)


steps = st.integers(0, STEP_MAX)
lines = st.builds(
    SavedLine,
    st.integers(1, INT32_MAX),
    st.sets(steps, max_size=4).map(lambda found: tuple(sorted(found, reverse=True))),
    st.none() | steps,
)


@given(lines)
@example(SavedLine(INT32_MAX, (STEP_MAX, STEP_MAX - 1, STEP_MAX - 2, STEP_MAX - 3), STEP_MAX))
def test_what_is_written_is_read(line: SavedLine) -> None:
    """Each line fits, with its padding, and reads as it was meant."""
    text = f"v1 {line.epoch} {steps_word(line.local)} {step_word(line.shared)}".encode()
    padded = text.ljust(LINE_BYTES_MAX - 1) + b"\n"
    assert len(padded) == LINE_BYTES_MAX
    assert parse_saved(padded) == line


@pytest.mark.parametrize(
    "content", [b"", b"v1 7 - -", b"v1 7 - -\n\n", b"v1 7 1\n", "v1 ٣ - -\n".encode(), b"v1 7 - - " + b" " * 80 + b"\n"]
)
def test_what_is_no_line_says_nothing(content: bytes) -> None:
    """Lines cut short, other digits, more than a line."""
    assert parse_saved(content) is None
