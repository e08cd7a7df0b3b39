"""The lines of the link: every message comes through whole, and nothing else does."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inplace.common.protocol.bounds import INT32_MAX, STEP_MAX
from inplace.common.protocol.errors import RemoteProtocolError
from inplace.common.protocol.link import (
    LINE_BYTES_MAX,
    LINK_PROCESS,
    SIGNAL_MAX,
    Absent,
    Checking,
    Completed,
    Ended,
    Ending,
    Examine,
    Examines,
    Failed,
    Fit,
    Hello,
    Leaving,
    Lifted,
    LineReader,
    Message,
    PlayedRank,
    Signal,
    Started,
    Unfit,
    line_of,
)

epochs = st.integers(0, INT32_MAX)
codes = st.integers(0, 255)
hosts = st.text("abc-.0", max_size=253).filter(lambda host: host != "-")
steps = st.integers(0, STEP_MAX)
of_pods = st.builds(PlayedRank, st.integers(0, 5498), st.integers(5499, 5500), hosts)
of_jobs = st.builds(
    PlayedRank, st.integers(0, 5498), st.integers(5499, 5500), hosts, st.integers(0, 5498), st.just(5499)
)
played = of_pods | of_jobs
messages = st.one_of(
    st.just(Leaving()),
    *(st.builds(each, epochs) for each in (Lifted, Started, Ending, Absent)),
    st.builds(Examine, epochs, epochs),
    st.just(Examines()),
    st.builds(Checking, st.integers(0, INT32_MAX)),
    st.just(Fit()),
    st.just(Unfit()),
    st.just(Completed()),
    st.builds(Lifted, st.just(INT32_MAX), played, st.none() | steps),
    st.builds(Lifted, st.just(INT32_MAX), st.none(), steps),
    st.builds(Signal, st.integers(0, SIGNAL_MAX)),
    *(st.builds(each, epochs, codes) for each in (Failed, Ended)),
)


@given(st.lists(messages, max_size=5), st.data())
def test_messages_come_through_whole(said: list[Message], data: st.DataObject) -> None:
    """However the bytes are cut, the same messages come out in order, and each line is short."""
    sent = [Hello(), *said]
    lines = [line_of(message) for message in sent]
    assert max(map(len, lines)) <= LINE_BYTES_MAX
    left, reader, heard = b"".join(lines), LineReader(), []
    while left:
        cut = data.draw(st.integers(1, len(left)))
        heard += reader.feed(left[:cut])
        left = left[cut:]
    assert heard == sent


@pytest.mark.parametrize(
    "nonsense",
    [
        b"\n",
        b"lifted\n",
        b"lifted 3 -4\n",
        b"lifted 0 4\n",
        b"lifted 3 0 4 - x\n",
        b"lifted 3 0 4 - 5 6\n",
        b"lifted 3 0 4 - 2 2\n",
        b"lifted 3 0 4 - 0 1 2 3\n",
        b"lifted  3\n",
        b"lifted 03\n",
        b"lifted +3\n",
        b"lifted -1\n",
        b"lifted 2147483648\n",
        b"lifted \xb2\n",  # a superscript two is a digit to Python
        b"failed 3 256\n",
        b"failed 3\n",
        b"LIFTED 3\n",
        b"lifted 3\r\n",
        b"GET / HTTP/1.1\r\n\r\n",
        b"\x00" * 400,
        b"lifted 3 4 4 -\n",
        b"lifted 0 0 4 -\n",
        b"lifted 3 0 5501 -\n",
        b"lifted 3 0 4 \n",
        b"lifted 3 0 4 a_b\n",
        b"lifted 3 0 4 " + b"a" * 254 + b"\n",
        b"lifted " + b"9" * 10_000,
        b"lifted " + b"9" * 10_000 + b"\n",
    ],
)
def test_nonsense_is_refused_in_words(nonsense: bytes) -> None:
    """A line is refused as a whole, with its beginning; a line without an end is refused before it is long."""
    reader = LineReader()
    assert reader.feed(line_of(Hello())) == [Hello()]
    with pytest.raises(RemoteProtocolError, match="expected a line") as raised:
        reader.feed(nonsense)
    assert len(str(raised.value)) < 250


@pytest.mark.parametrize("first", [b"lifted 3\n", b"inplace-link 3\n", b"inplace-link 0\n"])
def test_the_first_line_names_the_depth(first: bytes) -> None:
    """Another depth, or none, is no guard and no agent; the message says the cure."""
    with pytest.raises(RemoteProtocolError, match=r"'inplace-link 1' or 'inplace-link 2' first, saw .*; run the same"):
        LineReader().feed(first)


def test_an_agent_says_its_depth() -> None:
    """A guard reads both."""
    assert LineReader().feed(line_of(Hello(LINK_PROCESS))) == [Hello(LINK_PROCESS)]


@given(st.binary(max_size=300))
def test_any_bytes_are_messages_or_refused(received: bytes) -> None:
    """No input raises anything else."""
    reader = LineReader()
    try:
        heard = reader.feed(received)
    except RemoteProtocolError:
        return
    assert heard[:1] in ([], [Hello()], [Hello(LINK_PROCESS)])
