"""
The rules of the annotations that the API itself reads, of a Pod or of a template.

Source: k8s.io/kubernetes/pkg/apis/core/validation/validation.go (1.37.2), ValidatePodSpecificAnnotations,
validateSeccompAnnotationsAndFields, validateAppArmorAnnotationsAndFieldsMatchOnCreate.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

import msgspec

from inplace.common.protocol.bounds import INT32_MAX
from inplace.simulator.apiserver import formats
from inplace.simulator.apiserver.pod_scheduling import toleration
from inplace.simulator.apiserver.status import StatusCause, bad_value, forbidden_field

MIRROR: Final = "kubernetes.io/config.mirror"
TOLERATIONS: Final = "scheduler.alpha.kubernetes.io/tolerations"
DELETION_COST: Final = "controller.kubernetes.io/pod-deletion-cost"
SECCOMP_POD: Final = "seccomp.security.alpha.kubernetes.io/pod"
SECCOMP: Final = "container.seccomp.security.alpha.kubernetes.io/"
APPARMOR: Final = "container.apparmor.security.beta.kubernetes.io/"
_READ: Final = (MIRROR, TOLERATIONS, DELETION_COST, SECCOMP_POD, SECCOMP, APPARMOR)
_LOCAL: Final = "localhost/"
_PROFILES: Final = {"RuntimeDefault": ("runtime/default", "docker/default"), "Unconfined": ("unconfined",)}


def annotation_causes(
    annotations: Mapping[str, str] | None, spec: Mapping[str, Any], path: str, spec_path: str
) -> Iterator[StatusCause]:
    """Return the rules that annotations break, by themselves and beside the fields of the spec."""
    read = {key: value for key, value in (annotations or {}).items() if key.startswith(_READ)}
    containers = {
        container.get("name"): (container.get("securityContext") or {}, f"{spec_path}.{kind}[{at}].securityContext")
        for kind in ("initContainers", "containers")
        for at, container in enumerate(spec.get(kind) or ())
    }
    whole = spec.get("securityContext") or {}
    for key, value in read.items():
        name = key.rpartition("/")[2]
        context, where = containers.get(name, ({}, ""))
        if key == MIRROR and not spec.get("nodeName"):
            yield bad_value(f"{path}[{key}]", value, "must set spec.nodeName if mirror pod annotation is set")
        elif key == TOLERATIONS and value:
            yield from _tolerations(value, path)
        elif key == DELETION_COST and not _is_int32(value):
            yield bad_value(f"{path}[{key}]", value, "must be a 32bit integer")
        elif key.startswith((SECCOMP, SECCOMP_POD)):
            yield from _seccomp(value, f"{path}.{key}")
            of_pod = key == SECCOMP_POD
            profile = (whole if of_pod else context).get("seccompProfile")
            where = f"{spec_path}.securityContext" if of_pod else where
            yield from _match(value, profile, f"{where}.seccompProfile", "seccomp")
        elif key.startswith(APPARMOR):
            if name not in containers:
                yield bad_value(f"{path}[{key}]", name, "container not found")
            if value not in ("", "runtime/default", "unconfined") and not value.startswith(_LOCAL):
                yield bad_value(f"{path}[{key}]", value, f'invalid AppArmor profile name: "{value}"')
            profile = context.get("appArmorProfile") or whole.get("appArmorProfile") if where else None
            yield from _match(value, profile, f"{where}.appArmorProfile", "apparmor")


def _is_int32(value: str) -> bool:
    return bool(re.fullmatch("0|-[0-9]+|[1-9][0-9]*", value)) and -INT32_MAX - 1 <= int(value) <= INT32_MAX


def _tolerations(value: str, path: str) -> Iterator[StatusCause]:
    try:
        found = msgspec.json.decode(value, type=list[dict[str, Any]])
    except msgspec.MsgspecError as error:
        yield bad_value(path, TOLERATIONS, str(error))
        return
    for at, one in enumerate(found):
        yield from toleration(one, f"{path}.{TOLERATIONS}[{at}]")


def _seccomp(value: str, path: str) -> Iterator[StatusCause]:
    """Source: ValidateSeccompProfile."""
    if value.startswith(_LOCAL):
        local = value.removeprefix(_LOCAL)
        yield from (bad_value(path, local, why) for why in formats.inner_path(local))
    elif not any(value in known for known in _PROFILES.values()):
        yield bad_value(path, value, "must be a valid seccomp profile")


def _match(value: str, profile: Mapping[str, Any] | None, path: str, word: str) -> Iterator[StatusCause]:
    """Require that an annotation and a field say the same where both are there."""
    kind = (profile or {}).get("type")
    if kind in _PROFILES:
        if value not in (_PROFILES[kind] if word == "seccomp" else _PROFILES[kind][:1]):
            yield forbidden_field(f"{path}.type", f"{word} type in annotation and field must match")
    elif kind == "Localhost" and not value.startswith(_LOCAL):
        yield forbidden_field(f"{path}.type", f"{word} type in annotation and field must match")
    elif kind == "Localhost" and value.removeprefix(_LOCAL) != (profile or {}).get("localhostProfile"):
        yield forbidden_field(f"{path}.localhostProfile", f"{word} profile in annotation and field must match")
