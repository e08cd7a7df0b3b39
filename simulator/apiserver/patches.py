"""
Decode a PATCH and compute the object it asks for.

Source: k8s.io/apiserver/pkg/endpoints/handlers/patch.go.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import msgspec
import yaml

from inplace.common.kube.client import APPLY_PATCH, JSON_PATCH, MERGE_PATCH, STRATEGIC_MERGE_PATCH
from inplace.common.kube.resources import KubeObject
from inplace.simulator.apiserver import ownership, status
from inplace.simulator.apiserver.kinds import Kind
from inplace.simulator.apiserver.merge_patch import OPERATIONS_MAX, PatchError, json_patch, merge_patch
from inplace.simulator.apiserver.metadata import check_types
from inplace.simulator.apiserver.status import StatusCause
from inplace.simulator.apiserver.strategic_patch import strategic_merge
from inplace.simulator.apiserver.writes import WriteOptions, Writes, check_identity, name_mismatch, namespace_mismatch

_DECODER = msgspec.json.Decoder()


def decode_json(body: bytes) -> Any:
    """Return a JSON body; raises 400 when it is not JSON."""
    try:
        return _DECODER.decode(body)
    except msgspec.DecodeError as error:
        message = f"the object provided is unrecognized: couldn't get version/kind; json parse error: {error}"
        raise status.bad_request(message) from error


def decode_yaml(body: bytes) -> Any:
    """Return a YAML body; raises 400 when it is not YAML. Most clients send JSON, whose reader is faster."""
    with suppress(msgspec.DecodeError):
        return _DECODER.decode(body)
    try:
        return yaml.safe_load(body)
    except yaml.YAMLError as error:
        raise status.bad_request(f"error decoding YAML: {error}") from error


class Patches:
    """Applies patches of every type through `Writes`."""

    def __init__(self, writes: Writes) -> None:
        self._writes = writes

    def patch(
        self,
        kind: Kind,
        object_key: tuple[str, str],
        old: KubeObject | None,
        media_type: str,
        body: bytes,
        options: WriteOptions,
    ) -> tuple[KubeObject, bool]:
        """Patch an object; return it and whether it is new (server-side apply creates)."""
        if media_type.startswith("application/apply-patch"):
            return self._apply(kind, object_key, old, body, options)
        accepted = [JSON_PATCH, MERGE_PATCH, APPLY_PATCH]
        if not kind.custom:
            accepted.insert(2, STRATEGIC_MERGE_PATCH)
        if media_type not in accepted:
            raise status.unsupported_media_type(accepted)
        if old is None:
            raise status.not_found(kind.plural, kind.group, object_key[1])
        seen = kind.present(old)
        try:
            new = _patched(seen, media_type, decode_json(body))
        except PatchError as error:
            why = "the server rejected our request due to an error in our request"
            raise status.StatusError(422, "Invalid", why) from error
        if not isinstance(new, dict) or not isinstance(new.get("metadata"), dict):
            raise status.bad_request("expected the patched object to have metadata")
        self._check_result(new, seen)
        if kind.to_stored is not None:
            new = kind.to_stored(new)
        return self._writes.replace(kind, old, new, options), False

    def _check_result(self, new: KubeObject, seen: KubeObject) -> None:
        """Refuse a patch that renames, or after which the metadata cannot be decoded."""
        meta, before = new["metadata"], seen["metadata"]
        if meta is before:
            return
        if meta.get("name") != before["name"]:
            raise name_mismatch(meta.get("name") or "", before["name"])
        if meta.get("namespace") != before.get("namespace"):
            raise namespace_mismatch()
        try:
            check_types(meta)
        except status.StatusError as error:
            raise status.invalid("", "", "", [status.bad_value("patch", "", error.message)]) from error

    def _apply(
        self, kind: Kind, object_key: tuple[str, str], old: KubeObject | None, body: bytes, options: WriteOptions
    ) -> tuple[KubeObject, bool]:
        config = self._configuration(kind, object_key, body, options)
        if options.subresource and old is None:
            raise status.not_found(kind.plural, kind.group, object_key[1])
        writer = ownership.Writer(options.manager, options.subresource, kind.resource.api_version, self._writes.now())
        owners = () if old is None else self._writes.owners(kind, object_key)
        shape = ownership.shape_of(kind.storage)
        new, owners = ownership.apply(old, config, owners, writer, shape, force=options.force)
        if old is None:
            return self._writes.create(kind, object_key[0], new, options, owners), True
        return self._writes.replace(kind, old, new, options, owners), False

    def _configuration(self, kind: Kind, object_key: tuple[str, str], body: bytes, options: WriteOptions) -> KubeObject:
        """Return the applied configuration, reduced to the part that this path writes."""
        if not options.manager:
            cause = StatusCause("fieldManager", "Required value: is required for apply patch", "FieldValueRequired")
            raise status.invalid("PatchOptions", "meta.k8s.io", "", [cause])
        config: KubeObject = decode_yaml(body) if not body.lstrip().startswith(b"{") else decode_json(body)
        check_identity(kind, config)
        meta = dict(config.get("metadata") or {})
        if meta.get("managedFields"):
            raise status.bad_request("metadata.managedFields must be nil")
        if meta.get("name") and meta["name"] != object_key[1]:
            raise name_mismatch(meta["name"], object_key[1])
        if meta.get("namespace") and meta["namespace"] != object_key[0]:
            raise namespace_mismatch()
        meta["name"] = object_key[1]
        config = config | {"metadata": meta}
        if kind.to_stored is not None:
            config = kind.to_stored(config)
        if options.subresource == "status":
            bare = {"name": object_key[1]} | {k: meta[k] for k in ("uid", "resourceVersion") if k in meta}
            keep = {k: config[k] for k in ("apiVersion", "kind", "status") if k in config}
            return keep | {"metadata": bare}
        if kind.storage.has_status:
            config = {key: value for key, value in config.items() if key != "status"}
        return config


def _patched(target: KubeObject, media_type: str, patch: Any) -> Any:
    if media_type == JSON_PATCH:
        if not isinstance(patch, list) or not all(isinstance(operation, dict) for operation in patch):
            raise status.bad_request("error decoding patch: expected an array of operations")
        if len(patch) > OPERATIONS_MAX:
            raise status.StatusError(
                413,
                "RequestEntityTooLarge",
                f"Request entity too large: The allowed maximum operations in a JSON patch is {OPERATIONS_MAX}, "
                f"got {len(patch)}",
            )
        return json_patch(target, patch)
    if not isinstance(patch, dict):
        raise status.bad_request("error decoding patch: expected an object")
    return merge_patch(target, patch) if media_type == MERGE_PATCH else strategic_merge(target, patch)
