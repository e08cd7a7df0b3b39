"""Both encodings of the protocol carry the same epochs, and other values are refused."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inplace.common.protocol.bounds import INT32_MAX
from inplace.common.protocol.errors import RemoteProtocolError
from inplace.common.wire.names import (
    ATTEMPT,
    CURRENT_ATTEMPT,
    DEPRECATED_EPOCH,
    EPOCH,
    PREVIOUS_ATTEMPT,
    SYNCED_EPOCH,
    epoch_annotations,
    epoch_of_pod,
    epochs_of_status,
    parse_int32,
    status_of_epochs,
)

announced = st.integers(1, INT32_MAX)
pairs = st.integers(0, INT32_MAX).flatmap(lambda synced: st.tuples(st.just(synced), st.integers(0, synced)))
digits = st.text("0123456789", max_size=12)
texts = st.one_of(st.text(max_size=12), digits, st.integers().map(str), st.from_regex(r"[+-]?\d{1,12}\s?"))
json_values = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), st.text(max_size=5), st.lists(st.integers())
)


@given(announced)
def test_announcement_round_trips_in_each_encoding(epoch: int) -> None:
    """Each encoding's key alone gives the same epoch."""
    annotations = epoch_annotations(epoch)

    assert set(annotations) == {EPOCH, ATTEMPT}
    assert epoch_of_pod(annotations) == epoch
    assert epoch_of_pod({EPOCH: annotations[EPOCH]}) == epoch
    assert epoch_of_pod({ATTEMPT: annotations[ATTEMPT]}) == epoch


@given(pairs)
def test_status_round_trips_in_each_encoding(pair: tuple[int, int]) -> None:
    """The seed's fields, upstream's fields, and both together give the same epochs."""
    status = status_of_epochs(*pair)
    ours = {name: value for name, value in status.items() if name in (SYNCED_EPOCH, DEPRECATED_EPOCH)}
    upstream = {name: value for name, value in status.items() if name in (CURRENT_ATTEMPT, PREVIOUS_ATTEMPT)}

    assert epochs_of_status(status) == epochs_of_status(ours) == epochs_of_status(upstream) == pair


@given(pairs, pairs)
def test_the_larger_encoding_wins(ours: tuple[int, int], theirs: tuple[int, int]) -> None:
    """The larger encoding wins: after a change of controllers one pair of fields may lag."""
    status = status_of_epochs(*theirs)
    status.update({SYNCED_EPOCH: ours[0], DEPRECATED_EPOCH: ours[1]})

    assert epochs_of_status(status) == (max(ours[0], theirs[0]), max(ours[1], theirs[1]))


def test_absent_is_never() -> None:
    """An empty status and a Pod without annotation mean that no epoch was announced or synced."""
    assert epochs_of_status({}) == (0, 0)
    assert epoch_of_pod({}) is None


@given(texts, st.integers(0, 1))
def test_parse_int32_takes_plain_decimals_alone(text: str, least: int) -> None:
    """ASCII digits in range parse to their value; other texts raise RemoteProtocolError."""
    if re.fullmatch(r"[0-9]{1,10}", text) and least <= int(text) <= INT32_MAX:
        assert parse_int32(text, "name", least=least) == int(text)
    else:
        with pytest.raises(RemoteProtocolError, match=f"^name: expected an integer from {least} to {INT32_MAX}, saw "):
            parse_int32(text, "name", least=least)


@pytest.mark.parametrize("value", [None, 1, 1.0, True, b"1", ["1"], {"1": 1}])
def test_parse_int32_takes_text_alone(value: object) -> None:
    """A value that is not a text is refused, also a number."""
    with pytest.raises(RemoteProtocolError, match="expected an integer"):
        parse_int32(value, "name", least=0)


@pytest.mark.parametrize(
    "text", ["", "abc", "-1", "+1", "0", "2147483648", "1e3", " 1", "1 ", "\uff11", "\u0661", "0x1", "9" * 5000]
)
def test_bad_announcements_name_the_key(text: str) -> None:
    """The message says which annotation, what was expected and what was seen, in bounded length."""
    with pytest.raises(RemoteProtocolError, match=re.escape(EPOCH)) as caught:
        epoch_of_pod({EPOCH: text})

    assert len(str(caught.value)) < 200


def test_the_seeds_key_wins() -> None:
    """The seed's key wins over upstream's, because only our agent writes it."""
    assert epoch_of_pod({EPOCH: "3", ATTEMPT: "7"}) == 3


def test_the_last_attempt_is_one_below_int32() -> None:
    """Attempt 2^31 - 1 would be epoch 2^31."""
    assert epoch_of_pod({ATTEMPT: str(INT32_MAX - 1)}) == INT32_MAX
    with pytest.raises(RemoteProtocolError, match=re.escape(ATTEMPT)):
        epoch_of_pod({ATTEMPT: str(INT32_MAX)})


@given(
    st.dictionaries(st.sampled_from([SYNCED_EPOCH, DEPRECATED_EPOCH, CURRENT_ATTEMPT, PREVIOUS_ATTEMPT]), json_values)
)
def test_any_status_is_read_or_refused(status: dict[str, Any]) -> None:
    """For any JSON in a status the reader returns int32s or raises RemoteProtocolError."""
    try:
        epochs = epochs_of_status(status)
    except RemoteProtocolError:
        return

    assert all(0 <= epoch <= INT32_MAX for epoch in epochs)
