from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest

from inplace.simulator.apiserver.fields import NamedShape
from inplace.simulator.apiserver.ownership import (
    PENDING_UPDATES_MAX,
    OwnerBook,
    PlainUpdate,
    Writer,
    after_create,
    after_update,
)

SHAPE = NamedShape()


def versions(count: int) -> list[dict[str, Any]]:
    """Return versions of an object whose one field changes each time."""
    return [{"metadata": {"name": "pod", "labels": {f"l{n % 3}": str(n)}}, "spec": {"n": n}} for n in range(count)]


@pytest.mark.parametrize("updates", [0, 1, PENDING_UPDATES_MAX - 1, PENDING_UPDATES_MAX, 3 * PENDING_UPDATES_MAX])
def test_owners_that_are_asked_for_late_are_the_same(updates: int) -> None:
    """An update that is settled later gives the same owners as one that is settled at once."""
    seen = versions(updates + 1)
    book, key = OwnerBook(), "pod"
    expected = after_create(seen[0], Writer("maker", "", "v1", "t0"))
    book.settle(key, expected)
    for number, (old, new) in enumerate(pairwise(seen)):
        writer = Writer(f"manager-{number % 2}", "", "v1", f"t{number}")
        expected = after_update(expected, old, new, writer, SHAPE)
        book.note(key, PlainUpdate(old, new, writer), SHAPE)
    assert [(o.manager, o.time, o.resolved(SHAPE)) for o in book.owners(key, SHAPE)] == [
        (o.manager, o.time, o.resolved(SHAPE)) for o in expected
    ]


def test_what_is_gone_has_no_owners() -> None:
    """An object that is deleted and made again under its name begins with no owners."""
    book = OwnerBook()
    old, new = versions(2)
    book.settle("pod", after_create(old, Writer("maker", "", "v1", "t0")))
    book.note("pod", PlainUpdate(old, new, Writer("manager", "", "v1", "t1")), SHAPE)
    book.forget("pod")
    assert book.owners("pod", SHAPE) == ()
    assert not book.is_applied("pod")
