"""The file of a run's tail: a ring behind a head, of which a worker may make anything."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

from hypothesis import given
from hypothesis import strategies as st

from inplace.agent.worker.run_output import TailFile
from inplace.common.wire.run_tail import TAIL_BYTES, head_of, parse_tail, tail_file

SIZES = st.lists(st.integers(1, 3 * TAIL_BYTES), max_size=6)


@given(SIZES)
def test_the_last_bytes_are_kept_in_order(sizes: list[int]) -> None:
    """Whatever was written, in whatever pieces."""
    written = b"".join(bytes([65 + place]) * (size - 1) + b"\n" for place, size in enumerate(sizes))
    with TemporaryDirectory() as folder:
        file, at = TailFile(folder), 0
        file.begin(7)
        for size in sizes:
            file.append(written[at : at + size])
            at += size
        found = parse_tail((Path(folder) / tail_file(0)).read_bytes())
    assert found is not None
    assert (found.epoch, found.total) == (7, len(written))
    assert found.text == written[-TAIL_BYTES:]


@given(st.binary(max_size=200))
def test_no_content_is_an_error(content: bytes) -> None:
    """What says nothing is no tail; what says something has a text within the bound."""
    for each in (content, head_of(1, 1, 10**14) + content, head_of(1, 1, len(content)) + content):
        found = parse_tail(each)
        assert found is None or len(found.text) <= TAIL_BYTES
