"""The patch algorithms against their definitions."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inplace.simulator.apiserver.fields import (
    NamedShape,
    changed,
    difference,
    field_set,
    intersection,
    leaves,
    merge,
    union,
    without,
)
from inplace.simulator.apiserver.merge_patch import PatchError, json_patch, merge_patch
from inplace.simulator.apiserver.strategic_patch import strategic_merge

KEYS = st.sampled_from(["a", "b", "c", "data"])
SCALARS = st.one_of(st.none(), st.booleans(), st.integers(-3, 3), st.text("xy", max_size=2))
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=2) | st.dictionaries(KEYS, inner, max_size=3), max_leaves=8
)
OBJECTS = st.dictionaries(KEYS, VALUES, max_size=3)
SHAPE = NamedShape()


def rfc_7386(target: Any, patch: Any) -> Any:
    """Return MergePatch(Target, Patch), word for word from RFC 7386 section 2."""
    if not isinstance(patch, dict):
        return patch
    target = copy.deepcopy(target) if isinstance(target, dict) else {}
    for name, value in patch.items():
        if value is None:
            if name in target:
                del target[name]
        else:
            target[name] = rfc_7386(target.get(name), value)
    return target


@given(VALUES, VALUES)
def test_merge_patch_is_rfc_7386(target: Any, patch: Any) -> None:
    """The copy-on-write merge patch equals the RFC's pseudocode and leaves its target alone."""
    before = copy.deepcopy(target)
    assert merge_patch(target, patch) == rfc_7386(target, patch)
    assert target == before


@given(OBJECTS, OBJECTS)
def test_merge_patch_twice_is_once(target: Any, patch: Any) -> None:
    """A merge patch is idempotent, which is why agents may retry it."""
    once = merge_patch(target, patch)
    assert merge_patch(once, patch) == once


@given(OBJECTS, OBJECTS)
def test_strategic_merge_without_special_lists_is_a_merge_patch(target: Any, patch: Any) -> None:
    """Where no list merges by key, a strategic patch is a merge patch that leaves its target alone."""
    before = copy.deepcopy(target)
    assert strategic_merge(target, patch) == merge_patch(target, patch)
    assert target == before


@given(st.lists(st.sampled_from("abcd"), unique=True), st.lists(st.sampled_from("abcd"), unique=True))
def test_strategic_merge_of_containers_is_a_union_by_name(old: list[str], new: list[str]) -> None:
    """Containers keep their order; patched ones change in place, new ones follow."""
    target = {"containers": [{"name": name, "image": "old"} for name in old]}
    patch = {"containers": [{"name": name, "image": "new"} for name in new]}
    merged = strategic_merge(target, patch)["containers"]
    assert [c["name"] for c in merged] == old + [name for name in new if name not in old]
    assert all((c["image"] == "new") == (c["name"] in new) for c in merged)


def test_strategic_merge_orders_elements_as_asked() -> None:
    """$setElementOrder, which kubectl apply sends, decides the order of a merged list."""
    target = {"env": [{"name": "a"}, {"name": "b"}]}
    patch = {"$setElementOrder/env": [{"name": "b"}, {"name": "c"}, {"name": "a"}], "env": [{"name": "c"}]}
    assert [e["name"] for e in strategic_merge(target, patch)["env"]] == ["b", "c", "a"]


@pytest.mark.parametrize(
    "operation",
    [
        {"op": "remove", "path": "/nobody"},
        {"op": "replace", "path": "/nobody", "value": 1},
        {"op": "test", "path": "/a", "value": 2},
        {"op": "add", "path": "/list/7", "value": 1},
        {"op": "add", "path": "a", "value": 1},
        {"op": "jump", "path": "/a"},
    ],
    ids=lambda operation: f"{operation['op']} {operation['path']}",
)
def test_impossible_json_patches_raise(operation: dict[str, Any]) -> None:
    """Each way in which a JSON patch cannot apply raises PatchError and changes nothing."""
    target = {"a": 1, "list": [1]}
    with pytest.raises(PatchError):
        json_patch(target, [{"op": "add", "path": "/b", "value": 1}, operation])
    assert target == {"a": 1, "list": [1]}


@given(OBJECTS, OBJECTS)
def test_field_sets_behave_like_sets_of_leaves(left: Any, right: Any) -> None:
    """Union, difference and intersection of field sets are those of their leaf paths, where leaves agree on depth."""
    one, two = field_set(left, SHAPE), field_set(right, SHAPE)
    assert set(leaves(difference(one, one))) == set()
    assert set(leaves(union(one, one))) == set(leaves(one))
    assert set(leaves(intersection(one, one))) == set(leaves(one))
    assert set(leaves(union(one, two))) <= set(leaves(one)) | set(leaves(two))


@given(OBJECTS, OBJECTS)
def test_changed_fields_are_what_a_merge_changes(live: Any, applied: Any) -> None:
    """Merging a configuration in changes fields of that configuration only, and merging it again nothing."""
    merged = merge(live, applied, SHAPE)
    fields = changed(live, merged, SHAPE) or {}
    assert set(leaves(difference(fields, field_set(applied, SHAPE)))) == set()
    assert merge(merged, applied, SHAPE) == merged
    assert changed(merged, merged, SHAPE) is None


@given(OBJECTS)
def test_removing_all_fields_leaves_nothing(value: Any) -> None:
    """An object without all of its own fields is empty."""
    assert without(value, field_set(value, SHAPE), SHAPE) == {}
