"""
Check the form of a JobSet, so that reading it cannot fail later, in the middle of a pass.

The CRD checks most of these fields too. This module finds the rest, once per version and with the path: parts of the
templates that the CRD leaves opaque, values that another CRD accepted, and a status that a person wrote. It ignores
fields that neither the controller nor the command line reads; those rely on the form, and check no type again.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import Annotated, Any, Final, TypeVar

import msgspec

from inplace.common.jobset.kinds import HOSTNAME
from inplace.common.jobset.pod_form import Count, ExitCodesForm, MetadataForm, PodSpecForm, PodTemplateForm, Text
from inplace.common.jobset.stored import annotations_read, as_raw
from inplace.common.protocol.bounds import INT32_MAX

T = TypeVar("T")
Port = tuple[int, str]  # number and protocol
TOLERATIONS_MAX: Final = 64  # of a template that are kept; the others are read from a Pod where they matter
PORTS_MAX: Final = 1_000  # of a JobSet's Service, 75 kB; a Pod listens on a few

_Size = Annotated[int, msgspec.Meta(ge=0, le=INT32_MAX)] | None


class _FailureRule(msgspec.Struct, rename="camel"):
    action: Text = None
    on_exit_codes: ExitCodesForm | None = None


class _PodFailurePolicy(msgspec.Struct, rename="camel"):
    rules: list[_FailureRule] | None = None


class _JobSpec(msgspec.Struct, rename="camel"):
    parallelism: _Size = None
    completions: _Size = None
    backoff_limit: Count = None
    completion_mode: Text = None
    pod_replacement_policy: Text = None
    pod_failure_policy: _PodFailurePolicy | None = None
    template: PodTemplateForm | None = None


class _JobTemplate(msgspec.Struct):
    metadata: MetadataForm | None = None
    spec: _JobSpec | None = None


@dataclass(frozen=True, slots=True)
class TemplateForm:
    """What of a Job's template decides something.

    Args:
        annotations: those of template.metadata that are read.
        annotation_bytes: of all annotations of the template's Job, or of its Pods where they have more.
        ports: of its containers, each once; of too many the first `PORTS_MAX` and one more.
        tolerations: of its Pods, the first `TOLERATIONS_MAX`; admission may add to them.
        names_a_node: its Pods ask for nodes by their name, so its author chose the node on which one failed.
        priority_class_name: of its Pods.
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
    names_a_node: bool = False
    priority_class_name: str = ""


class _Dependency(msgspec.Struct):
    name: str
    status: Text = None


class _ReplicatedJob(msgspec.Struct, rename="camel"):
    name: str
    replicas: _Size = None
    group_name: Text = None
    template: Any = None
    depends_on: list[_Dependency] | None = None


class _Rule(msgspec.Struct, rename="camel"):
    name: Text = None
    action: Text = None
    on_job_failure_reasons: list[str] | None = None
    on_job_failure_message_patterns: list[str] | None = None
    target_replicated_jobs: list[str] | None = None
    set_condition_reason: Text = None


class _FailurePolicy(msgspec.Struct, rename="camel"):
    max_restarts: Count = None
    restart_strategy: Text = None
    rules: list[_Rule] | None = None


class _SuccessPolicy(msgspec.Struct, rename="camel"):
    operator: Text = None
    target_replicated_jobs: list[str] | None = None


class _StartupPolicy(msgspec.Struct, rename="camel"):
    startup_policy_order: Text = None


class _Network(msgspec.Struct, rename={"dns": "enableDNSHostnames", "not_ready": "publishNotReadyAddresses"}):
    dns: bool | None = None
    not_ready: bool | None = None
    subdomain: Text = None


class _Coordinator(msgspec.Struct, rename="camel"):
    replicated_job: str
    job_index: Count = None
    pod_index: Count = None


class _ClaimMetadata(MetadataForm, kw_only=True):
    name: str


class _Claim(msgspec.Struct):
    metadata: _ClaimMetadata
    spec: dict[str, Any] | None = None


class _Retention(msgspec.Struct, rename="camel"):
    when_deleted: Text = None


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
    managed_by: Text = None
    ttl_seconds_after_finished: Count = None
    active_deadline_seconds: int | None = None
    volume_claim_policies: Any = None
    scheduling: Scheduling | None = None


class _Counters(msgspec.Struct, rename="camel"):
    name: str
    ready: Count = None
    succeeded: Count = None
    job_restarts: list[int] | None = None
    job_restarts_count_towards_max: list[int] | None = None


class _Condition(msgspec.Struct):
    type: str
    status: Text = None
    reason: Text = None
    message: Text = None


class _Scope(msgspec.Struct, rename="camel"):
    name: str
    exempt_epochs: Count = None
    last_exempt_epoch: Count = None


class _Status(msgspec.Struct, rename="camel"):
    """All but the epochs, which common/wire/names.py reads."""

    conditions: list[_Condition] | None = None
    restarts: Count = None
    restarts_count_towards_max: Count = None
    replicated_jobs_status: list[_Counters] | None = None
    exempt_epochs: Count = None
    last_exempt_epoch: Count = None
    execution_attempts: Count = None
    start_time: Text = None
    restart_scope: Text = None
    scoped_epochs: list[_Scope] | None = None


class _Identity(MetadataForm, kw_only=True):
    namespace: str
    name: str
    uid: str


class _JobSet(msgspec.Struct):
    metadata: _Identity
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


def in_words(error: msgspec.MsgspecError) -> str:
    """Return where an object has another form, what was expected there, and what was seen."""
    text, _, path = str(error).partition(" - at `$")
    place = path.removesuffix("`").removeprefix(".") or "the object"
    if missing := _MISSING.fullmatch(text):
        return f"{place}: expected {missing[1]}, saw none"
    if not (other := _OTHER.fullmatch(text)):
        return f"{place}: {text[:1].lower()}{text[1:]}"
    wanted = [_TYPES.get(name, name) for name in other[1].split(" | ") if name != "null"]
    seen = f", saw {_TYPES.get(other[3], other[3])}" if other[3] else ""
    hint = "; in quotes it is a text" if "a text" in wanted and other[3] in ("int", "float", "bool") else ""
    return f"{place}: expected {' or '.join(wanted)}{other[2]}{seen}{hint}"


_MISSING: Final = re.compile(r"Object missing required field (`.+`)")
_OTHER: Final = re.compile(r"Expected `(.+?)`(.*?)(?:, got `(.+)`)?")
_TYPES: Final[Mapping[str, str]] = {
    "object": "a mapping",
    "array": "a list",
    "str": "a text",
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "null": "nothing",
}


def _decode_at(path: str, decoder: msgspec.json.Decoder[T], value: object) -> T:
    """Decode a part that is kept as bytes; an error names its place in the whole."""
    try:
        return decoder.decode(as_raw(value))
    except msgspec.MsgspecError as error:
        what, _, rest = str(error).partition(" - at `$")
        raise msgspec.ValidationError(f"{what} - at `{path}{rest or '`'}") from error


def _form_of(template: _JobTemplate) -> TemplateForm:
    spec = template.spec or _JobSpec()
    metadata, pods = (
        template.metadata or MetadataForm(),
        (spec.template or PodTemplateForm()).metadata or MetadataForm(),
    )
    pod_spec = (spec.template or PodTemplateForm()).spec or PodSpecForm()
    return TemplateForm(
        parallelism=spec.parallelism,
        completions=spec.completions,
        backoff_limit=spec.backoff_limit,
        completion_mode=spec.completion_mode,
        pod_replacement_policy=spec.pod_replacement_policy,
        annotations=annotations_read(metadata.annotations or {}),
        ports=_ports(pod_spec),
        tolerations=tuple((pod_spec.tolerations or ())[:TOLERATIONS_MAX]),
        names_a_node=_names_a_node(pod_spec),
        priority_class_name=pod_spec.priority_class_name or "",
        annotation_bytes=max(_size(metadata.annotations or {}), _size(pods.annotations or {})),
    )


def _ports(pods: PodSpecForm) -> tuple[Port, ...]:
    """Return the ports of the containers, without those that say no number."""
    given = (port for container in pods.containers or () for port in container.ports or ())
    found = dict.fromkeys((port.container_port, port.protocol or "TCP") for port in given if port.container_port)
    return tuple(islice(found, PORTS_MAX + 1))


def _names_a_node(pods: PodSpecForm) -> bool:
    affinity = bytes(pods.affinity.node_affinity) if pods.affinity is not None else b""
    is_named = any(f'"{name}"'.encode() in affinity for name in (HOSTNAME, "metadata.name"))
    return is_named or bool(pods.node_name) or HOSTNAME in (pods.node_selector or {})


def _size(words: Mapping[str, str]) -> int:
    """Return the size of annotations as the API counts it. Source: apimachinery, ValidateAnnotationsSize."""
    return sum(len(name.encode()) + len(value.encode()) for name, value in words.items())


# The form of spec.scheduling: which Pods the scheduler places together (KEP-969 of upstream). Pure.
#
# What is passed on unread stays a dictionary, so that a field of a newer Kubernetes survives.


class Gang(msgspec.Struct, rename="camel"):
    """All Pods of a group or none; upstream reads `minCount` of one Job's group alone."""

    min_count: int | None = None


class Policy(msgspec.Struct):
    """How the Pods of one group are placed."""

    basic: dict[str, Any] | None = None
    gang: Gang | None = None


class Placing(msgspec.Struct, rename="camel"):
    """What all three levels can say of a group; `resourceClaims` is of one Job's group alone."""

    scheduling_policy: Policy | None = None
    scheduling_constraints: dict[str, Any] | None = None
    disruption_mode: dict[str, Any] | None = None
    resource_claims: list[dict[str, Any]] | None = None

    @property
    def is_gang(self) -> bool:
        """Say whether the Pods are placed whole or not at all: where nothing is said, too, as upstream has it."""
        return self.scheduling_policy is None or self.scheduling_policy.gang is not None


class Entry(Placing, rename="camel", kw_only=True):
    """One entry of spec.scheduling.replicatedJobs; with `job` each Job of its one target is a group of its own."""

    target_replicated_jobs: list[str]
    job: Placing | None = None


class Scheduling(Placing, rename="camel", kw_only=True):
    """spec.scheduling; an empty one counts as set."""

    replicated_jobs: list[Entry] | None = None
