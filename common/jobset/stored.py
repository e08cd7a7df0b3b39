"""
A JobSet as the cache keeps it: the parts that a user may fill with a megabyte stay bytes.

A parsed template of a megabyte takes ten megabytes of dictionaries. So templates (of Jobs and of claims) are kept as
`msgspec.Raw` inside the object, and decoded when a Job is built. Of the metadata only the fields that are read are
kept. A JobSet then takes about as much memory as its JSON, which a ResourceQuota can bound by number:
docs/operations.md, docs/adr/0056.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from inplace.common.jobset.settings import OF_GROUPS
from inplace.common.kube.codec import Change, Codec, raw_meta
from inplace.common.kube.resources import KubeObject
from inplace.common.wire import names as wire

Words = dict[str, str]

_ANNOTATIONS: Final = frozenset(
    {
        wire.RESTART_IN_PLACE,
        wire.DISABLE,
        wire.EXCLUSIVE_TOPOLOGY,
        wire.NODE_SELECTOR_STRATEGY,
        wire.GROUP_TEMPLATE,
        *wire.SETTINGS.values(),
        wire.RESTART_REQUESTED,
        *(setting.key for setting in OF_GROUPS),
    }
)
_METADATA: Final = frozenset(
    {"name", "namespace", "uid", "resourceVersion", "generation", "deletionTimestamp", "annotations"}
)
_TOP: Final = frozenset({"apiVersion", "kind", "metadata", "status"})
_FIELDS: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])
_LIST: Final = msgspec.json.Decoder(list[dict[str, msgspec.Raw]])
_CHANGE: Final = msgspec.json.Decoder(Change[msgspec.Raw])


def annotations_read(annotations: Words) -> Words:
    """Return the annotations that decide something, of a JobSet or of a template."""
    return {name: value for name, value in annotations.items() if name in _ANNOTATIONS}


def as_raw(value: object) -> msgspec.Raw:
    """Return a part of an object as bytes, whichever way it is there."""
    return value if isinstance(value, msgspec.Raw) else msgspec.Raw(msgspec.json.encode(value))


def as_value(value: object) -> Any:
    """Return a part of an object decoded, a fresh copy, whichever way it is there."""
    return msgspec.json.decode(as_raw(value))


def _decode(data: bytes | msgspec.Raw) -> KubeObject:
    fields = _FIELDS.decode(data)
    obj = {name: msgspec.json.decode(raw) for name, raw in fields.items() if name in _TOP}
    metadata = {name: value for name, value in obj["metadata"].items() if name in _METADATA}
    if isinstance(annotations := metadata.get("annotations"), dict):
        metadata["annotations"] = annotations_read(annotations)
    obj["metadata"] = metadata
    if (spec := fields.get("spec")) is not None:
        obj["spec"] = _decode_spec(spec)
    return obj


def _decode_spec(spec: msgspec.Raw) -> Any:
    """Decode a spec but for its templates; one that has not their form is decoded whole, for others to refuse."""
    try:
        fields = _FIELDS.decode(spec)
        entries = _LIST.decode(fields.pop("replicatedJobs", b"[]"))
    except msgspec.ValidationError:
        return msgspec.json.decode(spec)
    claims = fields.pop("volumeClaimPolicies", None)
    decoded = {name: msgspec.json.decode(raw) for name, raw in fields.items()}
    decoded["replicatedJobs"] = [
        {name: raw.copy() if name == "template" else msgspec.json.decode(raw) for name, raw in entry.items()}
        for entry in entries
    ]
    return decoded if claims is None else decoded | {"volumeClaimPolicies": claims.copy()}


def _decode_change(line: bytes) -> Change[KubeObject]:
    change = _CHANGE.decode(line)
    return Change(change.type, _decode(change.object))


JOBSET_CODEC: Final[Codec[KubeObject]] = Codec(
    decode=_decode, decode_change=_decode_change, convert=lambda obj: _decode(msgspec.json.encode(obj)), meta=raw_meta
)
"""Keeps JobSets, their templates as bytes."""
