"""Read the JobSet of a manifest as the controller reads a new one. Pure."""

from __future__ import annotations

from typing import Final

from inplace.common.kube.resources import KubeObject
from inplace.common.protocol.errors import RemoteProtocolError
from inplace.controller.spec.jobset import JobSet, parse_jobset

# The controller reads metadata that only stored objects have.
_STORED: Final = {"uid": "00000000-0000-0000-0000-000000000000", "resourceVersion": "1"}
UNNAMED: Final = "?"
_GENERATED: Final = "xxxxx"  # what the API server appends to a generateName
UNREADABLE: Final = (RemoteProtocolError, TypeError, ValueError, AttributeError, KeyError)  # of `as_stored`


def as_stored(jobset: KubeObject) -> JobSet:
    """Read a JobSet as the controller does when it is new.

    Raises:
        UNREADABLE: it does not have a JobSet's form.
    """
    given = {name: value for name, value in (jobset.get("metadata") or {}).items() if value is not None}
    name = f"{given['generateName']}{_GENERATED}" if given.get("generateName") else UNNAMED
    metadata = {"name": name, "namespace": "default"} | _STORED | given
    return parse_jobset(jobset | {"metadata": metadata, "status": {}})
