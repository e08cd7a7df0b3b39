"""Counters that hold no more than what is there."""

from __future__ import annotations

from collections import Counter
from typing import TypeVar

_Key = TypeVar("_Key")


def bump(counter: Counter[_Key], key: _Key, sign: int) -> None:
    """Add `sign`, and drop the key at zero."""
    counter[key] += sign
    if counter[key] == 0:
        del counter[key]
