"""
What each field of a Pod template may hold by itself: a table of types, fields and formats.

The rules between fields are in pod_rules.py. A field that the table does not name may hold all that its type allows.
Source: k8s.io/kubernetes/pkg/apis/core/validation/validation.go (1.37.2), the function that each block names; the
defaults of pkg/apis/core/v1/defaults.go come first, so an empty text is here what the default makes of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from inplace.common.protocol.bounds import INT32_MAX
from inplace.simulator.apiserver import formats
from inplace.simulator.apiserver.formats import Format
from inplace.simulator.apiserver.metadata import label_causes
from inplace.simulator.apiserver.status import StatusCause, bad_value, not_supported, required

Check = Callable[[Any, str], Iterable[StatusCause]]
"""Return the broken rules of a value, None where the field is absent, at a path."""


def given(form: Format) -> Check:
    """Check a field where it is given, also an empty text."""
    return lambda value, path: () if value is None else [bad_value(path, value, why) for why in form(value)]


def filled(form: Format) -> Check:
    """Check a field where it is neither absent nor empty."""
    return lambda value, path: [bad_value(path, value, why) for why in form(value)] if value else ()


def zero(form: Format) -> Check:
    """Check a number; an absent one is 0."""
    return lambda value, path: [bad_value(path, value or 0, why) for why in form(value or 0)]


def empty(form: Format) -> Check:
    """Check a text; an absent one is empty."""
    return lambda value, path: [bad_value(path, value or "", why) for why in form(value or "")]


def needed(form: Format = lambda _: [], why: str = "") -> Check:
    """Require a field, and check it; with `why` as the reason."""
    missing = f"Required value: {why}" if why else "Required value"
    return lambda value, path: (
        [bad_value(path, value, one) for one in form(value)] if value else [required(path, missing)]
    )


def needed_key(value: Any, path: str) -> list[StatusCause]:
    """Require a label's key, and check it; an absent one breaks both rules."""
    missing = [] if value else [required(path, "Required value: can not be empty")]
    return missing + [bad_value(path, value or "", why) for why in formats.label_key(value or "")]


def one_of(*allowed: str) -> Check:
    """Allow only these texts where the field is neither absent nor empty, which means the default."""
    return lambda value, path: [not_supported(path, value, allowed)] if value and value not in allowed else ()


def given_one_of(*allowed: str) -> Check:
    """Allow only these texts where the field is given."""
    return lambda value, path: (
        [not_supported(path, value, allowed)] if value is not None and value not in allowed else ()
    )


def needed_one_of(*allowed: str) -> Check:
    """Allow only these texts, not an absent field either."""
    return lambda value, path: [] if value in allowed else [not_supported(path, value or "", allowed)]


def each(form: Format) -> Check:
    """Check every item of a list."""
    return lambda value, path: [
        bad_value(f"{path}[{at}]", item, why) for at, item in enumerate(value or ()) for why in form(item)
    ]


_PULL = ("Always", "IfNotPresent", "Never")
_ITEMS: Final[Mapping[str, Check]] = {"defaultMode": given(formats.file_mode)}
_NAMED_KEY: Final[Mapping[str, Check]] = {"name": empty(formats.subdomain), "key": needed(formats.config_key)}
_PROBE_NUMBERS = ("initialDelaySeconds", "timeoutSeconds", "periodSeconds", "successThreshold", "failureThreshold")
_WEIGHT: Final[Mapping[str, Check]] = {"weight": zero(formats.weight)}

FIELDS: Final[Mapping[str, Mapping[str, Check]]] = {
    # ValidatePodTemplateSpec, ValidatePodSpec
    "PodSpec": {
        "containers": needed(),
        "dnsPolicy": one_of("ClusterFirstWithHostNet", "ClusterFirst", "Default", "None"),
        "nodeSelector": label_causes,
        "serviceAccountName": filled(formats.subdomain),
        "nodeName": filled(formats.subdomain),
        "activeDeadlineSeconds": given(formats.between(1, INT32_MAX)),
        "subdomain": filled(formats.dns_label),
        "hostnameOverride": given(formats.subdomain),
        "priorityClassName": filled(formats.subdomain),
        "runtimeClassName": given(formats.subdomain),
        "preemptionPolicy": given_one_of("PreemptLowerPriority", "Never"),
    },
    "PodOS": {"name": needed_one_of("linux", "windows")},
    # validatePodSpecSecurityContext, ValidateSecurityContext
    "PodSecurityContext": {
        **dict.fromkeys(("fsGroup", "runAsUser", "runAsGroup"), given(formats.user_id)),
        "supplementalGroups": each(formats.user_id),
        "fsGroupChangePolicy": given_one_of("Always", "OnRootMismatch"),
        "supplementalGroupsPolicy": given_one_of("Merge", "Strict"),
        "seLinuxChangePolicy": given_one_of("MountOption", "Recursive"),
    },
    "SecurityContext": {
        **dict.fromkeys(("runAsUser", "runAsGroup"), given(formats.user_id)),
        "procMount": given_one_of("Default", "Unmasked"),
    },
    "WindowsSecurityContextOptions": {"gmsaCredentialSpecName": given(formats.subdomain)},
    # validatePodDNSConfig, ValidateHostAliases, validateReadinessGates, validateTopologySpreadConstraints
    "HostAlias": {"ip": empty(formats.ip_address), "hostnames": each(formats.subdomain)},
    "PodReadinessGate": {"conditionType": empty(formats.label_key)},
    "TopologySpreadConstraint": {
        "maxSkew": zero(formats.above_0),
        "topologyKey": needed(why="can not be empty"),
        "whenUnsatisfiable": needed_one_of("DoNotSchedule", "ScheduleAnyway"),
        "minDomains": given(formats.above_0),
        **dict.fromkeys(("nodeAffinityPolicy", "nodeTaintsPolicy"), given_one_of("Honor", "Ignore")),
    },
    # ValidatePreferredSchedulingTerms, validateWeightedPodAffinityTerms, validatePodAffinityTerm, ValidateLabelSelector
    "PreferredSchedulingTerm": _WEIGHT,
    "WeightedPodAffinityTerm": _WEIGHT,
    "PodAffinityTerm": {"topologyKey": needed_key},
    "NodeSelector": {"nodeSelectorTerms": needed(why="must have at least one node selector term")},
    "LabelSelector": {"matchLabels": label_causes},
    "LabelSelectorRequirement": {"key": empty(formats.label_key), "values": each(formats.label_value)},
    # validateContainerCommon
    "Container": {
        "name": needed(formats.dns_label),
        "image": needed(),
        "imagePullPolicy": one_of(*_PULL),
        "terminationMessagePolicy": one_of("File", "FallbackToLogsOnError"),
    },
    "ContainerPort": {
        "name": filled(formats.port_name),
        "containerPort": needed(formats.port_number),
        "hostPort": filled(formats.port_number),
        "protocol": one_of("SCTP", "TCP", "UDP"),
    },
    # ValidateEnv, ValidateEnvFrom
    "EnvVar": {"name": needed(formats.variable_name)},
    "EnvFromSource": {"prefix": filled(formats.variable_name)},
    "ConfigMapEnvSource": {"name": needed(formats.subdomain)},
    "SecretEnvSource": {"name": needed(formats.subdomain)},
    "ConfigMapKeySelector": _NAMED_KEY,
    "SecretKeySelector": _NAMED_KEY,
    "FileKeySelector": {
        "key": needed(formats.variable_name),
        "volumeName": needed(formats.dns_label),
        "path": needed(formats.no_backsteps),
    },
    # ValidateVolumeMounts, ValidateVolumeDevices
    "VolumeMount": {
        "name": needed(),
        "mountPath": needed(),
        **dict.fromkeys(("subPath", "subPathExpr"), filled(formats.inner_path)),
        "mountPropagation": given_one_of("Bidirectional", "HostToContainer", "None"),
        "recursiveReadOnly": given_one_of("Disabled", "Enabled", "IfPossible"),
    },
    "VolumeDevice": {"name": needed(), "devicePath": needed(formats.no_backsteps)},
    # validateProbe, validateHandler
    "Probe": dict.fromkeys(_PROBE_NUMBERS, given(formats.at_least_0)),
    "ExecAction": {"command": needed()},
    "HTTPGetAction": {"port": zero(formats.port), "scheme": one_of("HTTP", "HTTPS")},
    "HTTPHeader": {"name": empty(formats.header_name)},
    "TCPSocketAction": {"port": zero(formats.port)},
    "GRPCAction": {"port": zero(formats.port_number)},
    # validateContainerRestartPolicy
    "ContainerRestartRule": {
        "action": needed_one_of("Restart", "RestartAllContainers"),
        "exitCodes": lambda value, path: [required(path, "Required value: must be specified")] * (value is None),
    },
    "ContainerRestartRuleOnExitCodes": {"operator": needed_one_of("In", "NotIn")},
    # validateResizePolicy
    "ContainerResizePolicy": {
        "resourceName": needed_one_of("cpu", "memory"),
        "restartPolicy": needed_one_of("NotRequired", "RestartContainer"),
    },
    # ValidateVolumes, validateVolumeSource and the functions for each source
    "Volume": {"name": needed(formats.dns_label)},
    "HostPathVolumeSource": {
        "path": needed(formats.no_backsteps),
        "type": given_one_of(
            *("", "BlockDevice", "CharDevice", "Directory", "DirectoryOrCreate", "File", "FileOrCreate", "Socket")
        ),
    },
    "SecretVolumeSource": {"secretName": needed(), **_ITEMS},
    "ConfigMapVolumeSource": {"name": needed(), **_ITEMS},
    "DownwardAPIVolumeSource": _ITEMS,
    "ProjectedVolumeSource": _ITEMS,
    "SecretProjection": {"name": needed()},
    "ConfigMapProjection": {"name": needed()},
    "KeyToPath": {"key": needed(), "path": needed(formats.file_path), "mode": given(formats.file_mode)},
    "DownwardAPIVolumeFile": {"path": needed(formats.file_path), "mode": given(formats.file_mode)},
    "ServiceAccountTokenProjection": {"path": needed(formats.file_path)},
    "PersistentVolumeClaimVolumeSource": {"claimName": needed()},
    "NFSVolumeSource": {
        "server": needed(),
        "path": needed(lambda value: [] if value.startswith("/") else ["must be an absolute path"]),
    },
    "CSIVolumeSource": {"driver": needed(lambda value: formats.subdomain(value.lower()))},
    "EphemeralVolumeSource": {"volumeClaimTemplate": lambda value, path: [required(path)] * (value is None)},
    "ImageVolumeSource": {"pullPolicy": one_of(*_PULL)},
    # ValidatePersistentVolumeClaimSpec
    "PersistentVolumeClaimSpec": {
        "accessModes": needed(why="at least 1 access mode is required"),
        **dict.fromkeys(("storageClassName", "volumeAttributesClassName"), filled(formats.subdomain)),
        "volumeMode": given_one_of("Block", "Filesystem"),
    },
    # the sources of old plugins
    "AWSElasticBlockStoreVolumeSource": {"volumeID": needed(), "partition": given(formats.between(0, 255))},
    "GCEPersistentDiskVolumeSource": {"pdName": needed(), "partition": given(formats.between(0, 255))},
    "AzureFileVolumeSource": {"secretName": needed(), "shareName": needed()},
    "AzureDiskVolumeSource": {
        "diskName": needed(),
        "diskURI": needed(),
        "cachingMode": given_one_of("None", "ReadOnly", "ReadWrite"),
        "kind": given_one_of("Dedicated", "Managed", "Shared"),
    },
    "CephFSVolumeSource": {"monitors": needed()},
    "CinderVolumeSource": {"volumeID": needed()},
    "FlexVolumeSource": {"driver": needed()},
    "GitRepoVolumeSource": {"repository": needed(), "directory": filled(formats.inner_path)},
    "GlusterfsVolumeSource": {"endpoints": needed(), "path": needed()},
    "ISCSIVolumeSource": {"targetPortal": needed(), "iqn": needed(), "lun": given(formats.between(0, 255))},
    "PhotonPersistentDiskVolumeSource": {"pdID": needed()},
    "PortworxVolumeSource": {"volumeID": needed()},
    "QuobyteVolumeSource": {"registry": needed(), "volume": needed()},
    "RBDVolumeSource": {"monitors": needed(), "image": needed()},
    "ScaleIOVolumeSource": {"gateway": needed(), "system": needed(), "volumeName": needed()},
    "StorageOSVolumeSource": {"volumeName": needed(formats.dns_label), "volumeNamespace": filled(formats.dns_label)},
    "VsphereVirtualDiskVolumeSource": {"volumePath": needed()},
    # validatePodResourceClaim
    "PodResourceClaim": {
        "name": needed(formats.dns_label),
        **dict.fromkeys(("resourceClaimName", "resourceClaimTemplateName"), given(formats.subdomain)),
    },
}
