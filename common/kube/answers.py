"""
Decode the body of an API server's answer.

Guarantees: a body that is not as expected raises GarbledError with its first words, also one that nests deeper than a
reader can follow.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeVar

import msgspec

from inplace.common.kube.errors import first_words
from inplace.common.kube.http.request import GarbledError
from inplace.common.kube.resources import KubeObject

T = TypeVar("T")
UNREADABLE: Final = (msgspec.MsgspecError, ValueError, RecursionError)
"""What msgspec raises of somebody else's bytes: ValueError of broken UTF-8, RecursionError of 1,000 levels."""


def decoded(decode: Callable[[bytes], T], body: bytes, expected: str) -> T:
    """Return what a decoder makes of a body.

    Raises:
        GarbledError: nothing.
    """
    try:
        return decode(body)
    except UNREADABLE as error:
        reason = "it nests too deep" if isinstance(error, RecursionError) else str(error)
        raise GarbledError(f"expected {expected}, saw {first_words(body)!r} ({reason})") from error


def object_of(body: bytes) -> KubeObject:
    """Return an object or a list of objects as it came, at least with a kind and metadata.

    Raises:
        GarbledError: it is something else.
    """
    found = decoded(msgspec.json.decode, body, "an object of Kubernetes")
    if not isinstance(found, dict) or "kind" not in found or not isinstance(found.get("metadata", {}), dict):
        raise GarbledError(f"expected an object of Kubernetes, saw {first_words(body)!r}")
    return found
