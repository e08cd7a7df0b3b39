"""
Choose the format of an answer from Accept, and encode objects, lists and watch events in it.

Guarantees: an event is encoded once per format, however many watchers read it.
Source: KEP-1904 (Table, PartialObjectMetadata), k8s.io/apiserver/pkg/endpoints/handlers/response.go.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal

import msgspec
import yaml

from inplace.common.kube.resources import KubeObject
from inplace.simulator.apiserver.kinds import Kind
from inplace.simulator.apiserver.status import not_acceptable
from inplace.simulator.apiserver.store import Event, EventType
from inplace.simulator.apiserver.table import table

INITIAL_EVENTS_END = "k8s.io/initial-events-end"
ACCEPTED = ("application/json", "application/yaml")

_ACCEPTS_MAX = 256  # distinct Accept headers remembered
_ENCODER = msgspec.json.Encoder()


@dataclass(frozen=True, slots=True)
class Format:
    """How to answer: whole objects, Table rows or metadata only; as JSON or YAML."""

    view: Literal["object", "table", "metadata"] = "object"
    yaml: bool = False
    include_object: str = "Metadata"

    @property
    def content_type(self) -> str:
        """Return the media type of the answer."""
        return "application/yaml" if self.yaml else "application/json"


@lru_cache(maxsize=_ACCEPTS_MAX)
def choose(accept: str, include_object: str = "") -> Format:
    """Return the first format in an Accept header that the server speaks; raises 406 when there is none."""
    if not accept.strip():
        return Format()
    for media_range in accept.split(","):
        media_type, *parameters = (part.strip() for part in media_range.split(";"))
        values = dict(part.partition("=")[::2] for part in parameters)
        if media_type not in (*ACCEPTED, "*/*", "application/*"):
            continue
        as_yaml = media_type == "application/yaml"
        target = values.get("as", "")
        if not target:
            return Format(yaml=as_yaml)
        if values.get("g") == "meta.k8s.io" and values.get("v") in ("v1", "v1beta1"):
            if target == "Table":
                return Format("table", as_yaml, include_object or "Metadata")
            if target.startswith("PartialObjectMetadata"):
                return Format("metadata", as_yaml)
    raise not_acceptable(ACCEPTED)


def encode(value: Any, answer: Format) -> bytes:
    """Return the bytes of a finished answer object."""
    if answer.yaml:
        return yaml.safe_dump(value, sort_keys=False).encode()
    return _ENCODER.encode(value)


def render(kind: Kind, stored: KubeObject, answer: Format, now_s: float, *, with_columns: bool = True) -> KubeObject:
    """Return one object in the client's format."""
    if answer.view == "table":
        version = stored["metadata"].get("resourceVersion")
        meta = {"resourceVersion": version} if version else {}
        shown = [kind.present(stored)]
        return table(kind, shown, meta, answer.include_object, now_s, with_columns=with_columns)
    if answer.view == "metadata":
        return metadata_only(stored)
    return kind.present(stored)


def render_list(kind: Kind, items: list[KubeObject], meta: dict[str, Any], answer: Format, now_s: float) -> KubeObject:
    """Return a collection in the client's format."""
    if answer.view == "table":
        return table(kind, [kind.present(item) for item in items], meta, answer.include_object, now_s)
    if answer.view == "metadata":
        return {
            "kind": "PartialObjectMetadataList",
            "apiVersion": "meta.k8s.io/v1",
            "metadata": meta,
            "items": [metadata_only(item) for item in items],
        }
    presented: list[KubeObject] = [kind.present(item) for item in items]
    if not kind.custom:
        # Built-in kinds leave kind and apiVersion out of the items of a list.
        presented = [{k: v for k, v in item.items() if k not in ("kind", "apiVersion")} for item in presented]
    return {"kind": kind.kind_of_list, "apiVersion": kind.resource.api_version, "metadata": meta, "items": presented}


def metadata_only(obj: KubeObject) -> KubeObject:
    """Return an object's PartialObjectMetadata."""
    return {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": obj["metadata"]}


def encode_event(
    kind: Kind, event: Event, seen_as: EventType, answer: Format, *, with_columns: bool, now_s: float
) -> bytes:
    """Return a watch event's line of bytes, encoded once per format.

    `seen_as` is the type for this watcher: an object that left its selection is DELETED in its last matching state.
    `with_columns` sends the Table's column definitions, as a watcher's first event does.
    """
    cache_key = (seen_as, answer, kind.resource.group, kind.resource.version, with_columns)
    line = event.encoded.get(cache_key)
    if line is None:
        obj = event.obj
        if seen_as == "DELETED" and event.type != "DELETED":
            assert event.old is not None
            obj = {**event.old, "metadata": {**event.old["metadata"], "resourceVersion": str(event.revision)}}
        line = event.encoded[cache_key] = encode_line(
            kind, seen_as, obj, answer, with_columns=with_columns, now_s=now_s
        )
    return line


def encode_line(
    kind: Kind, event_type: str, obj: KubeObject, answer: Format, *, with_columns: bool, now_s: float
) -> bytes:
    """Return a watch event's line without caching: initial events and bookmarks."""
    shown = render(kind, obj, answer, now_s, with_columns=with_columns)
    return _ENCODER.encode({"type": event_type, "object": shown}) + b"\n"


def bookmark(kind: Kind, revision: int, *, initial_events_end: bool) -> KubeObject:
    """Return the object of a BOOKMARK event: only a resourceVersion."""
    meta: dict[str, Any] = {"resourceVersion": str(revision)}
    if initial_events_end:
        meta["annotations"] = {INITIAL_EVENTS_END: "true"}
    return {"kind": kind.resource.kind, "apiVersion": kind.resource.api_version, "metadata": meta}
