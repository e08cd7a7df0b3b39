"""
Say which rules a Pod template breaks, as the real server does when a Job or a Pod is created.

The tables of pod_fields.py and pod_rules.py judge each part by its type. The rules here need the whole Pod.
Source: k8s.io/kubernetes/pkg/apis/core/validation/validation.go (1.37.2), ValidatePodTemplateSpec, ValidatePodSpec.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any, Final

import msgspec

from inplace.simulator.apiserver import formats
from inplace.simulator.apiserver.decoding import TYPES
from inplace.simulator.apiserver.pod_fields import FIELDS
from inplace.simulator.apiserver.pod_resources import consistency_causes, resource_causes
from inplace.simulator.apiserver.pod_rules import RESTART_RULES_MAX, RULES, Part
from inplace.simulator.apiserver.status import (
    StatusCause,
    bad_value,
    duplicate,
    forbidden_field,
    not_supported,
    repeated,
    required,
    too_many,
)

TEMPLATES_MAX: Final = 64
"""Specs whose verdict is remembered, without hostnames: the Pods of a Job share one, and it has some 4 kB."""

_POLICIES: Final = ("Always", "OnFailure", "Never")
_CONTAINER_POLICIES: Final = ("Always", "Never", "OnFailure")
_PROBES: Final = ("livenessProbe", "readinessProbe", "startupProbe")
_NOT_JUDGED: Final = "PodSpec.ephemeralContainers"
"""Forbidden as a whole."""

_NOT_ON_WINDOWS: Final = (
    *("appArmorProfile", "seLinuxOptions", "seccompProfile", "fsGroup", "fsGroupChangePolicy", "sysctls", "runAsUser"),
    *("runAsGroup", "supplementalGroups", "supplementalGroupsPolicy", "seLinuxChangePolicy", "capabilities"),
    *("readOnlyRootFilesystem", "privileged", "allowPrivilegeEscalation", "procMount"),
)


def pod_spec_causes(spec: Part, path: str, *, of_pod: bool = False) -> Sequence[StatusCause]:
    """Return the rules that a spec breaks, of a template or of a Pod (`of_pod`); it is decoded and has its defaults."""
    hostname = spec.get("hostname")
    shared = spec if hostname is None else {name: value for name, value in spec.items() if name != "hostname"}
    found = _judged(msgspec.json.encode(shared), path, of_pod)
    unfit = formats.dns_label(hostname) if hostname else ()
    return (*found, *(bad_value(f"{path}.hostname", hostname, why) for why in unfit))


@lru_cache(maxsize=TEMPLATES_MAX)
def _judged(encoded: bytes, path: str, of_pod: bool) -> tuple[StatusCause, ...]:
    spec: Part = msgspec.json.decode(encoded)
    found = list(_causes(spec, "PodSpec", path))
    if spec.get("containers"):
        found += _pod_causes(spec, path, of_pod=of_pod)
    return tuple(found)


def _causes(value: Any, type_name: str, path: str) -> Iterator[StatusCause]:
    """Return the broken rules of a part and of the parts below it."""
    if type_name.startswith("["):
        for at, item in enumerate(value):
            yield from _causes(item, type_name[1:-1], f"{path}[{at}]")
    if type_name not in TYPES:
        return
    for field, check in FIELDS.get(type_name, {}).items():
        yield from check(value.get(field), f"{path}.{field}")
    if (rule := RULES.get(type_name)) is not None and not path.endswith("spec.resources"):
        yield from rule(value, path)
    for field, child in TYPES[type_name].items():
        if value.get(field) is not None and f"{type_name}.{field}" != _NOT_JUDGED:
            yield from _causes(value[field], child, f"{path}.{field}")


def _pod_causes(spec: Part, path: str, *, of_pod: bool) -> Iterator[StatusCause]:
    yield from _volume_causes(spec, path)
    containers = [
        (container, f"{path}.{kind}[{at}]", kind == "initContainers")
        for kind in ("containers", "initContainers")
        for at, container in enumerate(spec.get(kind) or ())
    ]
    names = [container.get("name") or "" for container, _, _ in containers]
    yield from (duplicate(f"{containers[at][1]}.name", name) for at, name in repeated(names))
    for container, here, is_init in containers:
        yield from _container_causes(container, here, spec, is_init=is_init, of_pod=of_pod)
    yield from _port_causes(spec, path)
    yield from _host_causes(spec, path)
    yield from _security_causes(spec, path)
    yield from _dns_causes(spec, path)
    if (policy := spec.get("restartPolicy")) not in _POLICIES:
        yield not_supported(f"{path}.restartPolicy", policy, _POLICIES)
    for field, key in (("schedulingGates", ""), ("resourceClaims", ".name")):
        names = [one.get("name") or "" for one in spec.get(field) or ()]
        yield from (duplicate(f"{path}.{field}[{at}]{key}", name) for at, name in repeated(names))
    for at, gate in enumerate(spec.get("schedulingGates") or ()):
        name = gate.get("name") or ""
        yield from (bad_value(f"{path}.schedulingGates[{at}]", name, why) for why in formats.label_key(name))
    spreads = [
        (one.get("topologyKey"), one.get("whenUnsatisfiable")) for one in spec.get("topologySpreadConstraints") or ()
    ]
    for at, spread in enumerate(spreads):
        if spread in spreads[at + 1 :]:
            here = f"{path}.topologySpreadConstraints[{at}].{{topologyKey, whenUnsatisfiable}}"
            yield duplicate(here, f"{{{spread[0]}, {spread[1]}}}")
    if spec.get("resources") is not None:
        yield from _resources_of_pod(spec, f"{path}.resources")
    if spec.get("overhead"):
        yield from resource_causes({"limits": spec["overhead"]}, path)
    if spec.get("ephemeralContainers"):
        why = "cannot be set on create" if of_pod else "ephemeral containers not allowed in pod template"
        yield forbidden_field(f"{path}.ephemeralContainers", why)
    if of_pod and spec.get("nodeName") and spec.get("schedulingGates"):
        yield forbidden_field(f"{path}.nodeName", "cannot be set until all schedulingGates have been cleared")


def _resources_of_pod(spec: Part, path: str) -> Iterator[StatusCause]:
    """Source: validatePodResources."""
    if spec["resources"].get("claims") is not None:
        yield forbidden_field(f"{path}.claims", "claims may not be set for Resources at pod-level")
    yield from resource_causes(spec["resources"], path, of_pod=True)
    yield from consistency_causes(spec, path)


def _sources(volume: Part) -> list[str]:
    """Return the kinds of a volume in the order of the API's types."""
    return [name for name in TYPES["Volume"] if name != "name" and volume.get(name) is not None]


def _volume_causes(spec: Part, path: str) -> Iterator[StatusCause]:
    """Source: ValidateVolumes, validateVolumeSource. A volume without a source is an emptyDir by default."""
    volumes = spec.get("volumes") or []
    names = [volume.get("name") or "" for volume in volumes]
    yield from (duplicate(f"{path}.volumes[{at}].name", name) for at, name in repeated(names))
    for at, volume in enumerate(volumes):
        for kind in _sources(volume)[1:]:
            yield forbidden_field(f"{path}.volumes[{at}].{kind}", "may not specify more than 1 volume type")
        image = volume.get("image")
        if image is not None and not image.get("reference"):
            yield required(f"{path}.volumes[{at}].image.reference")


def _container_causes(container: Part, path: str, spec: Part, *, is_init: bool, of_pod: bool) -> Iterator[StatusCause]:
    """Source: validateContainerCommon, validateInitContainers, validateContainers."""
    sidecar = is_init and container.get("restartPolicy") == "Always"
    image = container.get("image") or ""
    if of_pod and image != image.strip():
        yield bad_value(f"{path}.image", image, "must not have leading or trailing whitespace")
    if is_init and not sidecar:
        for field in (*_PROBES, "lifecycle"):
            if container.get(field) is not None:
                yield forbidden_field(
                    f"{path}.{field}", "may not be set for init containers without restartPolicy=Always"
                )
    yield from _restart_causes(container, path)
    yield from _mount_causes(container, path, spec)
    yield from _name_causes(container, path, spec)
    for at, one in enumerate(container.get("resizePolicy") or ()):
        policy, here = one.get("restartPolicy") or "", f"{path}.resizePolicy"
        if spec.get("restartPolicy") == "Never" and policy != "NotRequired":
            yield bad_value(here, policy, "must be 'NotRequired' when pod `restartPolicy` is 'Never'")
        if is_init and not sidecar and policy == "RestartContainer":
            why = "must not be set to 'RestartContainer' for non-sidecar initContainers"
            yield bad_value(f"{here}[{at}].restartPolicy", policy, why)
    grace = spec.get("terminationGracePeriodSeconds")
    for hook in ("postStart", "preStop"):
        sleep = ((container.get("lifecycle") or {}).get(hook) or {}).get("sleep")
        if sleep is not None and grace is not None and not 0 <= (sleep.get("seconds") or 0) <= grace:
            why = f"must be non-negative and less than terminationGracePeriodSeconds ({grace})"
            yield bad_value(f"{path}.lifecycle.{hook}.sleep", sleep.get("seconds") or 0, why)


def _name_causes(container: Part, path: str, spec: Part) -> Iterator[StatusCause]:
    """Check names that are unique in a container, or stand in the Pod: of ports, resizes, claims and env files."""
    ports = [port.get("name") or "" for port in container.get("ports") or ()]
    yield from (duplicate(f"{path}.ports[{at}].name", name) for at, name in repeated(ports))
    resized = [one.get("resourceName") or "" for one in container.get("resizePolicy") or ()]
    yield from (duplicate(f"{path}.resizePolicy[{at}]", name) for at, name in repeated(resized))
    claims = {claim.get("name") for claim in spec.get("resourceClaims") or ()}
    used = (container.get("resources") or {}).get("claims") or []
    yield from _claims_causes(used, claims, f"{path}.resources.claims")
    volumes = {volume.get("name"): volume for volume in spec.get("volumes") or ()}
    for at, variable in enumerate(container.get("env") or ()):
        file = (variable.get("valueFrom") or {}).get("fileKeyRef")
        if file is None:
            continue
        name, here = file.get("volumeName") or "", f"{path}.env[{at}].valueFrom.fileKeyRef.volumeName"
        if name not in volumes:
            yield _not_found(here, name)
        elif volumes[name].get("emptyDir") is None and _sources(volumes[name]):
            yield bad_value(here, name, "referenced volume must be of type emptyDir")


def _claims_causes(used: list[Part], claims: set[Any], path: str) -> Iterator[StatusCause]:
    """Source: validateResourceClaimNames."""
    seen = set[tuple[str, str]]()
    for at, one in enumerate(used):
        name, request, here = one.get("name") or "", one.get("request") or "", f"{path}[{at}]"
        if not name:
            yield required(here)
            continue
        yield from (
            bad_value(f"{here}.request", request, why) for why in (formats.dns_label(request) if request else ())
        )
        if (name, "") in seen or (name, request) in seen or (not request and any(name == other for other, _ in seen)):
            yield duplicate(here, name)
        seen.add((name, request))
        if name not in claims:
            known = f": {', '.join(sorted(map(str, claims)))}" if claims else " which is empty"
            why = f'Not found: "{name}": must be one of the names in pod.spec.resourceClaims{known}'
            yield StatusCause(here, why, "FieldValueNotFound")


def _not_found(path: str, name: str) -> StatusCause:
    return StatusCause(path, f'Not found: "{name}"', "FieldValueNotFound")


def _mount_causes(container: Part, path: str, spec: Part) -> Iterator[StatusCause]:
    """Source: ValidateVolumeMounts, ValidateVolumeDevices, validateMountPropagation."""
    volumes = {volume.get("name"): volume for volume in spec.get("volumes") or ()}
    mounts, devices = container.get("volumeMounts") or (), container.get("volumeDevices") or ()
    mounted = [mount.get("mountPath") or "" for mount in mounts]
    yield from (
        bad_value(f"{path}.volumeMounts[{at}].mountPath", one, "must be unique") for at, one in repeated(mounted)
    )
    for at, mount in enumerate(mounts):
        if (name := mount.get("name") or "") not in volumes:
            yield _not_found(f"{path}.volumeMounts[{at}].name", name)
        privileged = (container.get("securityContext") or {}).get("privileged")
        if mount.get("mountPropagation") == "Bidirectional" and not privileged:
            why = "Bidirectional mount propagation is available only to privileged containers"
            yield forbidden_field(f"{path}.volumeMounts.mountPropagation", why)
    for field, what in (("name", ""), ("devicePath", " as a path")):
        found = [device.get(field) or "" for device in devices]
        taken = {mount.get("name" if field == "name" else "mountPath") for mount in mounts}
        here = f"{path}.volumeDevices"
        yield from (bad_value(f"{here}[{at}].{field}", one, "must be unique") for at, one in repeated(found))
        for at, one in enumerate(found):
            if one in taken:
                yield bad_value(f"{here}[{at}].{field}", one, f"must not already exist{what} in volumeMounts")
    for at, device in enumerate(devices):
        name, here = device.get("name") or "", f"{path}.volumeDevices[{at}].name"
        if name not in volumes:
            yield _not_found(here, name)
        elif not {"persistentVolumeClaim", "ephemeral"} & {*_sources(volumes[name])}:
            why = "can only use volume source type of PersistentVolumeClaim or Ephemeral for block mode"
            yield bad_value(here, name, why)


def _restart_causes(container: Part, path: str) -> Iterator[StatusCause]:
    """Source: validateContainerRestartPolicy; KEP-5307 and KEP-5532."""
    policy, rules = container.get("restartPolicy"), container.get("restartPolicyRules") or ()
    if policy is None and rules:
        why = "Required value: must specify restartPolicy when restart rules are used"
        yield required(f"{path}.restartPolicy", why)
    if policy is not None and policy not in _CONTAINER_POLICIES:
        yield not_supported(f"{path}.restartPolicy", policy, _CONTAINER_POLICIES)
    if len(rules) > RESTART_RULES_MAX:
        yield too_many(f"{path}.restartPolicyRules", len(rules), RESTART_RULES_MAX)


def _port_causes(spec: Part, path: str) -> Iterator[StatusCause]:
    """Source: checkHostPortConflicts, validatePodHostNetworkDeps; init containers run one by one."""
    alone = [[(at, one)] for at, one in enumerate(spec.get("initContainers") or ())]
    for kind, group in (
        ("containers", list(enumerate(spec["containers"]))),
        *(("initContainers", one) for one in alone),
    ):
        ports = [
            (f"{path}.{kind}[{at}].ports[{index}].hostPort", port)
            for at, container in group
            for index, port in enumerate(container.get("ports") or ())
        ]
        taken = [
            f"{port.get('protocol') or 'TCP'}/{port.get('hostIP') or ''}/{port['hostPort']}"
            if port.get("hostPort")
            else ""
            for _, port in ports
        ]
        yield from (duplicate(ports[at][0], name) for at, name in repeated(taken))
        for here, port in ports if spec.get("hostNetwork") and kind == "containers" else ():
            if port.get("hostPort") and port["hostPort"] != port.get("containerPort"):
                yield bad_value(here, port["hostPort"], "must match `containerPort` when `hostNetwork` is true")


def _host_causes(spec: Part, path: str) -> Iterator[StatusCause]:
    """Source: validateHostUsers, validatePodHostName, validatePodSpecSecurityContext."""
    if spec.get("hostUsers") is False:
        for field, word in (("hostNetwork", "hostNetwork"), ("hostPID", "HostPID"), ("hostIPC", "HostIPC")):
            if spec.get(field):
                yield forbidden_field(f"{path}.{word}", "when `hostUsers` is false")
        for kind in ("initContainers", "containers"):
            for at, container in enumerate(spec.get(kind) or ()):
                if container.get("volumeDevices"):
                    yield forbidden_field(f"{path}.{kind}[{at}].volumeDevices", "when `hostUsers` is false")
    if (name := spec.get("hostnameOverride")) is not None:
        here = f"{path}.hostnameOverride"
        if spec.get("setHostnameAsFQDN"):
            yield forbidden_field(here, "may not be specified when setHostnameAsFQDN is true")
        if spec.get("hostNetwork"):
            yield forbidden_field(here, "may not be specified when hostNetwork is true")
        if len(name) > 64:
            yield StatusCause(here, "Too long: may not be more than 64 bytes", "FieldValueTooLong")
    if spec.get("shareProcessNamespace") and spec.get("hostPID"):
        why = "ShareProcessNamespace and HostPID cannot both be enabled"
        yield bad_value(f"{path}.securityContext.shareProcessNamespace", True, why)


def _security_causes(spec: Part, path: str) -> Iterator[StatusCause]:
    """Source: validateSysctls, ValidateHostSysctl, validateLinux, validateWindows, ValidateSecurityContext."""
    context = spec.get("securityContext") or {}
    sysctls = context.get("sysctls") or ()
    names = [one.get("name") or "" for one in sysctls]
    here = f"{path}.securityContext.sysctls"
    yield from (duplicate(f"{here}[{at}].name", name) for at, name in repeated(names))
    for at, name in enumerate(names):
        if not name:
            yield required(f"{here}[{at}].name")
        elif len(name) > 253 or not formats.SYSCTL.fullmatch(name):
            why = f"must have at most 253 characters and match regex ^{formats.SYSCTL.pattern}$"
            yield bad_value(f"{here}[{at}].name", name, why)
        dotted = name.replace("/", ".")
        of_ipc = dotted.startswith(("fs.mqueue.", "kernel.shm", "kernel.msg")) or dotted == "kernel.sem"
        for field, is_its in (("hostNetwork", dotted.startswith("net.")), ("hostIPC", of_ipc)):
            if spec.get(field) and is_its:
                yield bad_value(f"{here}[{at}].name", name, f"may not be specified when '{field}' is true")
    contexts = [(context, f"{path}.securityContext")] + [
        (container["securityContext"], f"{path}.{kind}[{at}].securityContext")
        for kind in ("initContainers", "containers")
        for at, container in enumerate(spec.get(kind) or ())
        if container.get("securityContext") is not None
    ]
    system = (spec.get("os") or {}).get("name")
    for one, at_path in contexts:
        if one.get("procMount") == "Unmasked" and spec.get("hostUsers") is not False:
            yield bad_value(f"{at_path}.procMount", "Unmasked", "`hostUsers` must be false to use `Unmasked`")
        if system == "linux" and one.get("windowsOptions") is not None:
            yield forbidden_field(f"{at_path}.windowsOptions", "windows options cannot be set for a linux pod")
        for field in _NOT_ON_WINDOWS if system == "windows" else ():
            if one.get(field) is not None:
                yield forbidden_field(f"{at_path}.{field}", "cannot be set for a windows pod")
    for field in ("hostUsers", "hostPID", "hostIPC", "shareProcessNamespace") if system == "windows" else ():
        if spec.get(field) or (field not in ("hostPID", "hostIPC") and spec.get(field) is not None):
            yield forbidden_field(f"{path}.{field}", "cannot be set for a windows pod")


def _dns_causes(spec: Part, path: str) -> Iterator[StatusCause]:
    """Source: validatePodDNSConfig."""
    config, here = spec.get("dnsConfig"), f"{path}.dnsConfig"
    servers, searches = ((config or {}).get(name) or [] for name in ("nameservers", "searches"))
    if spec.get("dnsPolicy") == "None" and not servers:
        what, field = ("at least one DNS nameserver", ".nameservers") if config is not None else ("`dnsConfig`", "")
        yield required(f"{here}{field}", f"Required value: must provide {what} when `dnsPolicy` is None")
        return
    if len(servers) > 3:
        yield bad_value(f"{here}.nameservers", servers, "must not have more than 3 nameservers")
    for at, server in enumerate(servers):
        yield from (bad_value(f"{here}.nameservers[{at}]", server, why) for why in formats.ip_address(server))
    if len(searches) > 32:
        yield bad_value(f"{here}.searches", searches, "must not have more than 32 search paths")
    if len(" ".join(searches)) > 2048:
        why = "must not have more than 2048 characters (including spaces) in the search list"
        yield bad_value(f"{here}.searches", searches, why)
    for at, search in enumerate(searches):
        if search != ".":
            name = search.removesuffix(".")
            yield from (bad_value(f"{here}.searches[{at}]", name, why) for why in formats.search_domain(name))
    for at, option in enumerate((config or {}).get("options") or ()):
        if not option.get("name"):
            yield required(f"{here}.options[{at}]", "Required value: must not be empty")
