"""
Check the form of a JobSet, so that reading it cannot fail later, in the middle of a pass.

The CRD checks most of these fields too. This module finds the rest, once per version and with the path: parts of the
templates that the CRD leaves opaque, values that another CRD accepted, and a status that a person wrote. It ignores
fields that the controller does not read.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Final, TypeVar

import msgspec

from inplace.controller.spec.stored import annotations_read, as_raw

T = TypeVar("T")
Port = tuple[int, str]  # number and protocol
DEFAULT_ACCOUNT: Final = "default"  # every namespace has it
TOLERATIONS_MAX: Final = 64  # of a template that are kept; the others are read from a Pod where they matter
PORTS_MAX: Final = 1_000  # of a JobSet's Service, 75 kB; a Pod listens on a few

_Text = str | None
_Count = int | None
_Words = dict[str, str] | None


class _Named(msgspec.Struct):
    name: _Text = None


class _Port(msgspec.Struct, rename="camel"):
    container_port: _Count = None
    protocol: _Text = None


class _Container(msgspec.Struct, rename="camel"):
    volume_mounts: list[_Named] | None = None
    ports: list[_Port] | None = None


class _Terms(msgspec.Struct, rename="camel"):
    required_during_scheduling_ignored_during_execution: list[Any] | None = None


class _Affinity(msgspec.Struct, rename="camel"):
    pod_affinity: _Terms | None = None
    pod_anti_affinity: _Terms | None = None


class _PodSpec(msgspec.Struct, rename="camel"):
    restart_policy: _Text = None
    service_account_name: _Text = None
    service_account: _Text = None
    containers: list[_Container] | None = None
    init_containers: list[_Container] | None = None
    volumes: list[_Named] | None = None
    node_selector: _Words = None
    tolerations: list[dict[str, Any]] | None = None
    scheduling_gates: list[dict[str, Any]] | None = None
    affinity: _Affinity | None = None


class _Metadata(msgspec.Struct):
    labels: _Words = None
    annotations: _Words = None


class _PodTemplate(msgspec.Struct):
    metadata: _Metadata | None = None
    spec: _PodSpec | None = None


class _JobSpec(msgspec.Struct, rename="camel"):
    parallelism: _Count = None
    completions: _Count = None
    backoff_limit: _Count = None
    completion_mode: _Text = None
    pod_replacement_policy: _Text = None
    template: _PodTemplate | None = None


class _JobTemplate(msgspec.Struct):
    metadata: _Metadata | None = None
    spec: _JobSpec | None = None


@dataclass(frozen=True, slots=True)
class TemplateForm:
    """What of a Job's template decides something.

    Args:
        annotations: those of template.metadata that are read.
        annotation_bytes: of all annotations of the template's Job, or of its Pods where they have more.
        ports: of its containers, each once; of too many the first `PORTS_MAX` and one more.
        tolerations: of its Pods, the first `TOLERATIONS_MAX`; admission may add to them.
        service_account: of its Pods; admission gives `default` to those that name none.
    """

    parallelism: int | None = None
    completions: int | None = None
    backoff_limit: int | None = None
    completion_mode: str | None = None
    pod_replacement_policy: str | None = None
    annotations: Mapping[str, str] = field(default_factory=dict)
    annotation_bytes: int = 0
    ports: tuple[Port, ...] = ()
    tolerations: tuple[Mapping[str, Any], ...] = ()
    service_account: str = DEFAULT_ACCOUNT


class _Dependency(msgspec.Struct):
    name: str
    status: _Text = None


class _ReplicatedJob(msgspec.Struct, rename="camel"):
    name: str
    replicas: _Count = None
    group_name: _Text = None
    template: Any = None
    depends_on: list[_Dependency] | None = None


class _Rule(msgspec.Struct, rename="camel"):
    name: _Text = None
    action: _Text = None
    on_job_failure_reasons: list[str] | None = None
    on_job_failure_message_patterns: list[str] | None = None
    target_replicated_jobs: list[str] | None = None
    set_condition_reason: _Text = None


class _FailurePolicy(msgspec.Struct, rename="camel"):
    max_restarts: _Count = None
    restart_strategy: _Text = None
    rules: list[_Rule] | None = None


class _SuccessPolicy(msgspec.Struct, rename="camel"):
    operator: _Text = None
    target_replicated_jobs: list[str] | None = None


class _StartupPolicy(msgspec.Struct, rename="camel"):
    startup_policy_order: _Text = None


class _Network(msgspec.Struct, rename={"dns": "enableDNSHostnames", "not_ready": "publishNotReadyAddresses"}):
    dns: bool | None = None
    not_ready: bool | None = None
    subdomain: _Text = None


class _Coordinator(msgspec.Struct, rename="camel"):
    replicated_job: str
    job_index: _Count = None
    pod_index: _Count = None


class _ClaimMetadata(_Metadata, kw_only=True):
    name: str


class _Claim(msgspec.Struct):
    metadata: _ClaimMetadata
    spec: dict[str, Any] | None = None


class _Retention(msgspec.Struct, rename="camel"):
    when_deleted: _Text = None


class _ClaimPolicy(msgspec.Struct, rename="camel"):
    templates: list[_Claim] | None = None
    retention_policy: _Retention | None = None


class _Spec(msgspec.Struct, rename="camel"):
    replicated_jobs: list[_ReplicatedJob] | None = None
    failure_policy: _FailurePolicy | None = None
    success_policy: _SuccessPolicy | None = None
    startup_policy: _StartupPolicy | None = None
    network: _Network | None = None
    suspend: bool | None = None
    coordinator: _Coordinator | None = None
    managed_by: _Text = None
    ttl_seconds_after_finished: _Count = None
    active_deadline_seconds: _Count = None
    volume_claim_policies: Any = None


class _Counters(msgspec.Struct, rename="camel"):
    name: str
    job_restarts: list[int] | None = None
    job_restarts_count_towards_max: list[int] | None = None


class _Condition(msgspec.Struct):
    type: str
    status: _Text = None


class _Scope(msgspec.Struct, rename="camel"):
    name: str
    exempt_epochs: _Count = None
    last_exempt_epoch: _Count = None


class _Status(msgspec.Struct, rename="camel"):
    """All but the epochs, which common/wire/names.py reads."""

    conditions: list[_Condition] | None = None
    restarts: _Count = None
    restarts_count_towards_max: _Count = None
    replicated_jobs_status: list[_Counters] | None = None
    exempt_epochs: _Count = None
    last_exempt_epoch: _Count = None
    execution_attempts: _Count = None
    start_time: _Text = None
    restart_scope: _Text = None
    scoped_epochs: list[_Scope] | None = None


class _JobSet(msgspec.Struct):
    metadata: _Metadata
    spec: _Spec | None = None
    status: _Status | None = None


def check_form(raw: dict[str, Any]) -> list[TemplateForm]:
    """Check that every field which is read has the type that its reader expects; return the forms of the templates.

    Raises:
        msgspec.ValidationError: one has not; the message names the path.
    """
    spec = msgspec.convert(raw, _JobSet).spec or _Spec()
    _decode_at("$.spec.volumeClaimPolicies", _POLICIES, spec.volume_claim_policies)
    return [
        _form_of(_decode_at(f"$.spec.replicatedJobs[{index}].template", _TEMPLATE, job.template) or _JobTemplate())
        for index, job in enumerate(spec.replicated_jobs or ())
    ]


_POLICIES: Final = msgspec.json.Decoder(list[_ClaimPolicy] | None)
_TEMPLATE: Final = msgspec.json.Decoder(_JobTemplate | None)


def _decode_at(path: str, decoder: msgspec.json.Decoder[T], value: object) -> T:
    """Decode a part that is kept as bytes; an error names its place in the whole."""
    try:
        return decoder.decode(as_raw(value))
    except msgspec.MsgspecError as error:
        what, _, rest = str(error).partition(" - at `$")
        raise msgspec.ValidationError(f"{what} - at `{path}{rest or '`'}") from error


def _form_of(template: _JobTemplate) -> TemplateForm:
    spec = template.spec or _JobSpec()
    metadata, pods = template.metadata or _Metadata(), (spec.template or _PodTemplate()).metadata or _Metadata()
    pod_spec = (spec.template or _PodTemplate()).spec or _PodSpec()
    return TemplateForm(
        parallelism=spec.parallelism,
        completions=spec.completions,
        backoff_limit=spec.backoff_limit,
        completion_mode=spec.completion_mode,
        pod_replacement_policy=spec.pod_replacement_policy,
        annotations=annotations_read(metadata.annotations or {}),
        ports=_ports(pod_spec),
        tolerations=tuple((pod_spec.tolerations or ())[:TOLERATIONS_MAX]),
        annotation_bytes=max(_size(metadata.annotations or {}), _size(pods.annotations or {})),
        service_account=pod_spec.service_account_name or pod_spec.service_account or DEFAULT_ACCOUNT,
    )


def _ports(pods: _PodSpec) -> tuple[Port, ...]:
    """Return the ports of the containers, without those that say no number."""
    given = (port for container in pods.containers or () for port in container.ports or ())
    found = dict.fromkeys((port.container_port, port.protocol or "TCP") for port in given if port.container_port)
    return tuple(islice(found, PORTS_MAX + 1))


def _size(words: Mapping[str, str]) -> int:
    """Return the size of annotations as the API counts it. Source: apimachinery, ValidateAnnotationsSize."""
    return sum(len(name.encode()) + len(value.encode()) for name, value in words.items())
