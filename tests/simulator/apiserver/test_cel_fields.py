"""Which fields of an object CEL rules look at."""

from __future__ import annotations

import pytest

from inplace.simulator.apiserver.cel_rules import fields_of, only

WHOLE = None


@pytest.mark.parametrize(
    ("rule", "fields"),
    [
        ("self.a.b == 1 || has(self.c)", {"a": {"b": WHOLE}, "c": WHOLE}),
        ("self.a == oldSelf.b", {"a": WHOLE, "b": WHOLE}),
        ("oldSelf.hasValue() || self.a > oldSelf.value().b.c", {"a": WHOLE, "b": {"c": WHOLE}}),
        ("size(self.name.trim()) > 0 && self.items.all(i, i.x == self.y)", {"name": WHOLE, "items": WHOLE, "y": WHOLE}),
        ("self.items[0].name == self.a.b && has(self.a)", {"items": WHOLE, "a": WHOLE}),
        ("self.__namespace__.name != ''", {"namespace": {"name": WHOLE}}),
        ("myself.a && selfless.b && 1 < 2", {}),
        ("self.a == 1 && self == oldSelf", WHOLE),
        ("self.all(k, self[k] > 0)", WHOLE),
        ("self.?a.hasValue()", WHOLE),
        ("oldSelf.orValue(self.a) == self.a", WHOLE),
    ],
)
def test_the_fields_of_a_rule(rule: str, fields: object) -> None:
    """What counts as a field, and what as the whole value."""
    assert fields_of((rule,)) == fields


def test_rules_of_one_object_share_what_they_look_at() -> None:
    """One conversion serves all rules of an object."""
    assert fields_of(("self.a.b", "self.a.c")) == {"a": {"b": WHOLE, "c": WHOLE}}


def test_only_these_fields_are_left_and_a_missing_one_stays_missing() -> None:
    """A rule with has() sees the same as with the whole object."""
    value = {"a": {"b": 1, "c": 2}, "list": [{"x": 1}], "d": 4}

    assert only(value, fields_of(("self.a.b == 1 && self.list.x && has(self.e)",))) == {
        "a": {"b": 1},
        "list": [{"x": 1}],
    }
    assert only(value, WHOLE) is value
    assert only("text", {"a": WHOLE}) == "text"
