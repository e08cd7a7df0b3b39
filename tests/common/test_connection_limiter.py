"""ConnectionLimiter: a new connection always gets one, and only the source with most connections loses one."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from inplace.common.connection_limiter import ConnectionLimiter

SEATS, PER_SOURCE = 6, 3


@given(st.lists(st.tuples(st.sampled_from("abcdefgh"), st.booleans()), max_size=60))
def test_only_the_largest_source_loses_a_seat(arrivals: list[tuple[str, bool]]) -> None:
    """Bounds hold after each arrival; the newcomer's full source, else a largest one, loses its oldest connection."""
    seats: ConnectionLimiter[int] = ConnectionLimiter(SEATS, PER_SOURCE)
    seated: dict[int, str] = {}
    for number, (source, one_leaves) in enumerate(arrivals):
        before = Counter(seated.values())
        loser = seats.take(number, source)
        if loser is not None:
            crowd = seated[loser]
            assert loser == min(guest for guest, its_source in seated.items() if its_source == crowd)
            if before[source] == PER_SOURCE:
                assert crowd == source
            else:
                assert len(seated) == SEATS
                assert before[crowd] == max(before.values())
            del seated[loser]
        else:
            assert len(seated) < SEATS
        seated[number] = source
        assert len(seated) <= SEATS
        assert max(Counter(seated.values()).values()) <= PER_SOURCE
        if one_leaves:
            gone = min(seated)
            seats.leave(gone)
            del seated[gone]
