"""
Keep objects of a kind in a cache: whole, or only the fields that are read.

A Pod is 5 to 15 kB of JSON and ten times that as dictionaries. Decoded into a Struct of the dozen fields that are
needed it takes about 1.5 kB, so 10,000 Pods stay small.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Generic, Literal, NamedTuple, Protocol, TypeVar

import msgspec

from inplace.common.kube.resources import KubeObject

T = TypeVar("T")


class Meta(NamedTuple):
    """What identifies one version of one object."""

    namespace: str
    name: str
    uid: str
    resource_version: str

    @property
    def key(self) -> tuple[str, str]:
        """Return (namespace, name)."""
        return self.namespace, self.name


class Change(msgspec.Struct, Generic[T], frozen=True, gc=False):
    """A line of a watch that tells of an object; bookmarks and errors are none."""

    type: Literal["ADDED", "MODIFIED", "DELETED"]
    object: T


@dataclass(frozen=True, slots=True)
class Codec(Generic[T]):
    """How objects of a kind are kept: decode only what is needed, and 10,000 Pods stay small.

    Args:
        decode: JSON of one object -> what is kept.
        decode_change: a line of a watch, in one go: 5,000 Pods that restart are 15,000 lines of 8 kB.
        convert: a raw object (the answer to a write) -> what is kept.
        meta: what is kept -> its identity.
    """

    decode: Callable[[bytes | msgspec.Raw], T]
    decode_change: Callable[[bytes], Change[T]]
    convert: Callable[[KubeObject], T]
    meta: Callable[[T], Meta]


def raw_meta(obj: KubeObject) -> Meta:
    """Return the identity of a whole object."""
    metadata = obj["metadata"]
    return Meta(metadata.get("namespace", ""), metadata["name"], metadata["uid"], metadata["resourceVersion"])


class SlimMeta(msgspec.Struct, rename="camel", frozen=True, gc=False):
    """The least metadata that a slim kind decodes; extend it with what the kind needs."""

    name: str
    uid: str
    resource_version: str
    namespace: str = ""
    deletion_timestamp: str | None = None


class _Identified(msgspec.Struct):
    metadata: SlimMeta


def _without_managed_fields(obj: KubeObject) -> KubeObject:
    msgspec.convert(obj, _Identified)
    obj["metadata"].pop("managedFields", None)
    return obj


_RAW_CHANGE: Final = msgspec.json.Decoder(Change[KubeObject])


def _decode_raw_change(line: bytes) -> Change[KubeObject]:
    change = _RAW_CHANGE.decode(line)
    _without_managed_fields(change.object)
    return change


RAW: Final[Codec[KubeObject]] = Codec(
    decode=lambda data: _without_managed_fields(msgspec.json.decode(data)),
    decode_change=_decode_raw_change,
    convert=lambda obj: _without_managed_fields(obj | {"metadata": dict(obj["metadata"])}),
    meta=raw_meta,
)
"""Keeps whole objects, without managedFields."""


class Slim(Protocol):
    """A msgspec Struct with metadata."""

    @property
    def metadata(self) -> SlimMeta:
        """Return the object's metadata."""


S = TypeVar("S", bound=Slim)


def slim(kind: type[S]) -> Codec[S]:
    """Return a codec that keeps only the fields of the Struct `kind`."""

    def meta(obj: S) -> Meta:
        m = obj.metadata
        return Meta(m.namespace, m.name, m.uid, m.resource_version)

    return Codec(
        decode=msgspec.json.Decoder(kind).decode,
        decode_change=msgspec.json.Decoder(Change[kind]).decode,  # type: ignore[valid-type]
        convert=lambda obj: msgspec.convert(obj, kind),
        meta=meta,
    )


def version_number(resource_version: str | None) -> int | None:
    """Return a resourceVersion as a number, None when it is not one.

    resourceVersions of one kind are ordered numbers: Kubernetes guarantees it since 1.35 (KEP-5504), etcd
    always did.
    """
    return int(resource_version) if resource_version is not None and resource_version.isdecimal() else None


def is_older(new: Meta, shown: Meta) -> bool:
    """Say whether `new` is known to be an older version than `shown`."""
    a, b = version_number(new.resource_version), version_number(shown.resource_version)
    return a is not None and b is not None and a < b
