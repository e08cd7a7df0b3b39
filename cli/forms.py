"""
Write the form of an object that comes from somebody else as a literal: which parts are mappings, lists, texts, numbers.

Each object is checked ONCE, where it comes in, and what reads it afterwards checks no type again: manifests in
cli/manifests/documents.py, answers of an API server in cli/answers.py. JobSets and Pods have forms of their own, which
their readers decode: common/jobset/form.py, cli/group/pod_facts.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import GenericAlias
from typing import Any, Final

import msgspec

WORDS: Final = dict[str, str]
METADATA: Final[Mapping[str, Any]] = {"labels?": WORDS, "annotations?": WORDS}


def form(shape: Any) -> Any:
    """Return the type that `msgspec.convert` checks a shape by.

    Args:
        shape: a mapping of field names to shapes, where a name with "?" at its end may be missing or null, and other
            fields are of any form; a list of one shape; or a type.
    """
    if isinstance(shape, list):
        (item,) = shape
        return GenericAlias(list, (form(item),))
    if not isinstance(shape, Mapping):
        return shape
    names = {f"field_{number}": name for number, name in enumerate(shape)}  # a name may be a word of Python
    fields: list[tuple[str, Any] | tuple[str, Any, Any]] = []
    for field, name in names.items():
        kind = form(shape[name])
        fields.append((field, kind | None, None) if name.endswith("?") else (field, kind))
    renamed = {field: name.removesuffix("?") for field, name in names.items()}
    return msgspec.defstruct("Form", fields, kw_only=True, rename=renamed)
