"""The field of a scope whose workers save."""

from __future__ import annotations

import pytest

from inplace.common.jobset.scopes import Saving, saving_of
from inplace.common.wire import names as wire


def test_it_is_read_as_it_was_written() -> None:
    """To the microsecond: another controller restarts when the first one would have."""
    saving = Saving(3, "by-hand", 1767225600.123456)
    assert saving_of(saving.fields()) == saving


@pytest.mark.parametrize("until", [None, "", "soon", 7])
def test_a_time_that_cannot_be_read_is_over(until: object) -> None:
    """Somebody else wrote it; it puts no restart off."""
    assert saving_of({wire.SAVING: {"epoch": 3, "request": "a", "until": until}}) == Saving(3, "a", 0.0)
