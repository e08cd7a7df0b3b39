"""The line of a rank's numbers: what follows no grammar says nothing."""

from __future__ import annotations

import pytest

from inplace.common.protocol.rank import RankNumbers
from inplace.common.wire.rank_numbers import parse_rank_numbers


@pytest.mark.parametrize(
    ("line", "numbers"),
    [
        (b"v1 3 0 - 1032000 1001000 1\n", RankNumbers(recent_s=1.032, before_s=1.001, waits=True)),
        (b"v1 3 21 1200 0 0 0\n", RankNumbers(bad=21, bad_since=1200)),
        (b"v1 - 0 - 1 0 0\n", RankNumbers(recent_s=1e-6)),
    ],
)
def test_it_is_read(line: bytes, numbers: RankNumbers) -> None:
    """Of its epoch, or of a writer that does not know it."""
    assert parse_rank_numbers(line, 3) == numbers


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"v1 4 0 - 1032000 1001000 1\n",
        b"v2 3 0 - 1032000 1001000 1\n",
        b"v1 3 0 - 1032000 1001000 1",
        b"v1 3 0 - 1032000 1001000 2\n",
        b"v1 3 -1 - 1032000 1001000 1\n",
        b"v1 3 0 - 1032000 1001000\n",
        b"v1 3 0 - 99999999999 1001000 1\n",
        b"v1 3 0 - 1032000 1001000 1\n" + b"x" * 64,
        b"\xff" * 64,
    ],
)
def test_anything_else_says_nothing(line: bytes) -> None:
    """Another epoch's, another version's, half a line, a stranger's file."""
    assert parse_rank_numbers(line, 3) is None
