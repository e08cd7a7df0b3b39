"""Build a merge patch that replaces fields of a status whole: RFC 7386 alone would keep old fields of objects."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def status_patch(stored: Mapping[str, Any], wanted: Mapping[str, Any]) -> dict[str, Any]:
    """Return what to patch so that each field of `wanted` is as it says; the other fields stay."""
    return {name: _replacing(stored.get(name), value) for name, value in wanted.items()}


def _replacing(old: Any, new: Any) -> Any:
    """Return `new` with a null for everything of `old` that it does not have."""
    if not (isinstance(old, Mapping) and isinstance(new, Mapping)):
        return new
    gone = {name: None for name in old if name not in new}
    return gone | {name: _replacing(old.get(name), value) for name, value in new.items()}
