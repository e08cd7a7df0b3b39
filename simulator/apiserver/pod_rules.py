"""
The rules between the fields of a Pod template: one function for each type that has some, in the table `RULES`.

What a field may hold by itself is in pod_fields.py. What the default feature gates drop before validation is left out:
stopSignal, schedulingGroup, evictionResponders, bindMountOptions, the users and modes of volumes, new kinds of probes.
Source: k8s.io/kubernetes/pkg/apis/core/validation/validation.go (1.37.2), the function that each rule names.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from inplace.simulator.apiserver import formats, pod_certificates, pod_scheduling, pod_variables, pod_volumes
from inplace.simulator.apiserver.pod_resources import resource_causes
from inplace.simulator.apiserver.status import (
    StatusCause,
    bad_value,
    forbidden_field,
    not_supported,
    required,
    too_many,
)

Part = dict[str, Any]
RESTART_RULES_MAX = 20
EXIT_CODES_MAX = 255
_DNS: Final = "[a-zA-Z0-9](?:[a-zA-Z0-9-]{0,61}[a-zA-Z0-9])?"
_WINDOWS_DOMAIN: Final = re.compile(rf'[^\\/:*?"<>|.][^\\/:*?"<>|]{{0,14}}|{_DNS}(?:\.{_DNS})*')


def _seccomp(profile: Part, path: str, name: str = "seccomp", field: str = "seccompProfile") -> Iterator[StatusCause]:
    """Source: validateSeccompProfileField, ValidateAppArmorProfileField."""
    kind, local = profile.get("type") or "", profile.get("localhostProfile")
    if kind not in (allowed := ("Localhost", "RuntimeDefault", "Unconfined")):
        missing = f"Required value: type is required when {field} is set"
        yield not_supported(f"{path}.type", kind, allowed) if kind else required(f"{path}.type", missing)
    if kind == "Localhost":
        if local is None or (name == "AppArmor" and not local):
            why = f"Required value: must be set when {name} type is Localhost"
            yield required(f"{path}.localhostProfile", why)
        elif name == "AppArmor":
            if local != local.strip():
                yield bad_value(f"{path}.localhostProfile", local, "must not be padded with whitespace")
        else:
            yield from (bad_value(f"{path}.localhostProfile", local, why) for why in formats.inner_path(local))
    elif local is not None and (kind in allowed or name == "seccomp"):
        why = f"can only be set when {name} type is Localhost"
        yield bad_value(f"{path}.localhostProfile", local, why)


def _apparmor(profile: Part, path: str) -> Iterator[StatusCause]:
    """Source: ValidateAppArmorProfileField."""
    yield from _seccomp(profile, path, "AppArmor", "appArmorProfile")


def _security_context(context: Part, path: str) -> Iterator[StatusCause]:
    """Source: ValidateSecurityContext; privileged containers are allowed, as in every real cluster."""
    if context.get("allowPrivilegeEscalation") is not False:
        return
    if context.get("privileged"):
        yield bad_value(path, context, "cannot set `allowPrivilegeEscalation` to false and `privileged` to true")
    if "CAP_SYS_ADMIN" in ((context.get("capabilities") or {}).get("add") or ()):
        why = "cannot set `allowPrivilegeEscalation` to false and `capabilities.Add` CAP_SYS_ADMIN"
        yield bad_value(path, context, why)


def _one_handler(handler: Part, path: str) -> Iterator[StatusCause]:
    """Source: validateHandler."""
    found = [name for name in ("exec", "httpGet", "tcpSocket", "grpc", "sleep") if handler.get(name) is not None]
    if not found:
        yield required(path, "Required value: must specify a handler type")
    yield from (forbidden_field(f"{path}.{name}", "may not specify more than 1 handler type") for name in found[1:])


def _probe(probe: Part, path: str) -> Iterator[StatusCause]:
    """Source: validateProbe, validateLivenessProbe, validateReadinessProbe, validateStartupProbe."""
    yield from _one_handler(probe, path)
    grace = probe.get("terminationGracePeriodSeconds")
    if grace is not None and grace <= 0:
        yield bad_value(f"{path}.terminationGracePeriodSeconds", grace, "must be greater than 0")
    if path.endswith(".readinessProbe"):
        if grace is not None:
            why = "must not be set for readinessProbes"
            yield bad_value(f"{path}.terminationGracePeriodSeconds", grace, why)
    elif (probe.get("successThreshold") or 1) != 1:
        yield bad_value(f"{path}.successThreshold", probe["successThreshold"], "must be 1")


def _mount(mount: Part, path: str) -> Iterator[StatusCause]:
    """Source: ValidateVolumeMounts, validateMountRecursiveReadOnly."""
    if mount.get("subPath") and mount.get("subPathExpr"):
        why = "subPathExpr and subPath are mutually exclusive"
        yield bad_value(f"{path}.subPathExpr", mount["subPathExpr"], why)
    if mount.get("recursiveReadOnly") in ("Enabled", "IfPossible"):
        here = f"{path}.recursiveReadOnly"
        if not mount.get("readOnly"):
            yield forbidden_field(here, "may only be specified when readOnly is true")
        if mount.get("mountPropagation") not in (None, "None"):
            yield forbidden_field(here, "may only be specified when mountPropagation is None or not specified")


def _windows(options: Part, path: str) -> Iterator[StatusCause]:
    """Source: validateWindowsSecurityContextOptions."""
    spec, user = options.get("gmsaCredentialSpec"), options.get("runAsUserName")
    if spec is not None and not 0 < len(spec) <= 64 * 1024:
        why = "cannot be an empty string" if not spec else "size must be under 64 KiB"
        yield bad_value(f"{path}.gmsaCredentialSpec", spec, f"gmsaCredentialSpec {why}")
    if user is None:
        return
    domain, slash, name = user.rpartition("\\")
    rules = (
        (not user, " cannot be an empty string"),
        (re.search(r"[\x00-\x1f\x7f]", user), " cannot contain control characters"),
        ("\\" in domain, " cannot contain more than one backslash"),
        (len(domain) >= 256, "'s Domain length must be under 256 characters"),
        (slash and not _WINDOWS_DOMAIN.fullmatch(domain), "'s Domain doesn't match the NetBios nor the DNS format"),
        (not name, "'s User cannot be empty"),
        (len(name) > 104, "'s User length must not be longer than 104 characters"),
        (re.fullmatch("[. ]+", name), "'s User cannot contain only periods or spaces"),
        (
            re.search(r'["/\\:;|=,+*?<>@\[\]]', name),
            "'s User cannot contain the following characters: \"/\\:;|=,+*?<>@[]",
        ),
    )
    for is_broken, why in rules:
        if is_broken:
            yield bad_value(f"{path}.runAsUserName", user, f"runAsUserName{why}")


def _host_process(spec: Part, path: str) -> Iterator[StatusCause]:
    """Source: validateWindowsHostProcessPod."""

    def asked(part: Part) -> bool | None:
        return ((part.get("securityContext") or {}).get("windowsOptions") or {}).get("hostProcess")

    of_pod = asked(spec)
    containers = [
        (f"{path}.{kind}[{at}].securityContext.windowsOptions.hostProcess", asked(container))
        for kind in ("initContainers", "containers")
        for at, container in enumerate(spec.get(kind) or ())
    ]
    for here, own in containers:
        if None not in (of_pod, own) and own != of_pod:
            why = f"pod hostProcess value must be identical if both are specified, was {str(of_pod).lower()}"
            yield bad_value(here, own, why)
    is_host = [of_pod if own is None else own for _, own in containers]
    if any(is_host):
        if not all(is_host):
            why = "If pod contains any hostProcess containers then all containers must be HostProcess containers"
            yield bad_value(path, "", why)
        if not spec.get("hostNetwork"):
            why = "hostNetwork must be true if pod contains any hostProcess containers"
            yield bad_value(f"{path}.hostNetwork", False, why)


def _resource_claim(claim: Part, path: str) -> Iterator[StatusCause]:
    """Source: validatePodResourceClaim."""
    given = [name for name in ("resourceClaimName", "resourceClaimTemplateName") if claim.get(name) is not None]
    if len(given) == 2:
        why = "at most one of `resourceClaimName` or `resourceClaimTemplateName` may be specified"
        yield bad_value(path, claim, why)
    if not given:
        yield bad_value(path, claim, "must specify one of: `resourceClaimName`, `resourceClaimTemplateName`")


def _exit_codes(codes: Part, path: str) -> Iterator[StatusCause]:
    if len(values := codes.get("values") or ()) > EXIT_CODES_MAX:
        yield too_many(f"{path}.values", len(values), EXIT_CODES_MAX)


RULES: Final[Mapping[str, Callable[[Part, str], Iterator[StatusCause]]]] = {
    "AppArmorProfile": _apparmor,
    "CSIVolumeSource": pod_volumes.csi,
    "ClusterTrustBundleProjection": pod_certificates.trust_bundle,
    "AzureDiskVolumeSource": pod_volumes.azure_disk,
    "CinderVolumeSource": pod_volumes.secret_named,
    "ContainerRestartRuleOnExitCodes": _exit_codes,
    "DownwardAPIVolumeFile": pod_volumes.downward_file,
    "EmptyDirVolumeSource": pod_volumes.empty_dir,
    "EnvFromSource": pod_variables.variables_from,
    "EnvVar": pod_variables.variable,
    "FCVolumeSource": pod_volumes.fibre_channel,
    "FlexVolumeSource": pod_volumes.flex,
    "FlockerVolumeSource": pod_volumes.flocker,
    "ISCSIVolumeSource": pod_volumes.iscsi,
    "LabelSelectorRequirement": pod_scheduling.selector_requirement,
    "LifecycleHandler": _one_handler,
    "NodeSelector": pod_scheduling.node_selector,
    "NodeSelectorTerm": pod_scheduling.node_term,
    "PersistentVolumeClaimSpec": pod_volumes.claim,
    "PersistentVolumeClaimTemplate": pod_volumes.claim_metadata,
    "PodAffinityTerm": pod_scheduling.affinity_term,
    "PodCertificateProjection": pod_certificates.certificate,
    "PodResourceClaim": _resource_claim,
    "PodSpec": _host_process,
    "Probe": _probe,
    "ProjectedVolumeSource": pod_volumes.projected,
    "QuobyteVolumeSource": pod_volumes.quobyte,
    "ResourceRequirements": resource_causes,
    "SeccompProfile": _seccomp,
    "SecurityContext": _security_context,
    "StorageOSVolumeSource": pod_volumes.secret_named,
    "Toleration": pod_scheduling.toleration,
    "TopologySpreadConstraint": pod_scheduling.spread,
    "VolumeMount": _mount,
    "WindowsSecurityContextOptions": _windows,
}
