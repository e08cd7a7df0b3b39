"""
The form of a Pod template, as far as the controller, what adds the agent, and the command line read it.

The CRD leaves most of it opaque, and the API server judges it only when a Job is created. Every field here has the type
that the API server wants, so that no Pod which it would take is refused.
"""

from __future__ import annotations

from typing import Annotated, Any

import msgspec

from inplace.common.protocol.bounds import INT32_MAX

Text = str | None
Count = Annotated[int, msgspec.Meta(ge=-(2**31), le=INT32_MAX)] | None
Words = dict[str, str] | None


class _Any(msgspec.Struct):
    """A mapping of which no more is read here."""


class _Named(msgspec.Struct):
    name: Text = None


class _Port(msgspec.Struct, rename="camel"):
    container_port: Count = None
    protocol: Text = None


class _FieldRef(msgspec.Struct, rename="camel"):
    field_path: str


class _Source(msgspec.Struct, rename="camel"):
    field_ref: _FieldRef | None = None


class _Variable(msgspec.Struct, rename="camel"):
    name: Text = None
    value_from: _Source | None = None


class _Mount(msgspec.Struct, rename="camel"):
    name: Text = None
    mount_path: Text = None


class ExitCodesForm(msgspec.Struct, rename="camel"):
    """Exit codes that a rule names."""

    container_name: Text = None
    operator: Text = None
    values: list[int] | None = None


class _RestartRule(msgspec.Struct, rename="camel"):
    action: Text = None
    exit_codes: ExitCodesForm | None = None


class _Asked(msgspec.Struct, rename="camel"):
    """Whom a probe asks, over HTTP, TCP or gRPC."""

    port: int | str | None = None
    path: Text = None
    http_headers: list[_Named] | None = None


class _Exec(msgspec.Struct):
    command: list[str] | None = None


class _Probe(msgspec.Struct, rename="camel"):
    http_get: _Asked | None = None
    tcp_socket: _Asked | None = None
    grpc: _Asked | None = None
    exec: _Exec | None = None
    initial_delay_seconds: Count = None
    period_seconds: Count = None
    timeout_seconds: Count = None
    failure_threshold: Count = None
    success_threshold: Count = None


class _Lifecycle(msgspec.Struct, rename="camel"):
    pre_stop: _Any | None = None


class _Resources(msgspec.Struct):
    requests: dict[str, str | int | float | None] | None = None
    limits: dict[str, str | int | float | None] | None = None


class _Container(msgspec.Struct, rename="camel"):
    name: Text = None
    image: Text = None
    command: list[str] | None = None
    args: list[str] | None = None
    env: list[_Variable] | None = None
    volume_mounts: list[_Mount] | None = None
    ports: list[_Port] | None = None
    resources: _Resources | None = None
    restart_policy: Text = None
    restart_policy_rules: list[_RestartRule] | None = None
    startup_probe: _Probe | None = None
    liveness_probe: _Probe | None = None
    readiness_probe: _Probe | None = None
    lifecycle: _Lifecycle | None = None
    security_context: _Any | None = None


class _Terms(msgspec.Struct, rename="camel"):
    required_during_scheduling_ignored_during_execution: list[Any] | None = None


class _Affinity(msgspec.Struct, rename="camel"):
    pod_affinity: _Terms | None = None
    pod_anti_affinity: _Terms | None = None
    node_affinity: msgspec.Raw = msgspec.Raw(b"null")


class _Projected(msgspec.Struct, rename="camel"):
    sources: list[_Any] | None = None


class _Volume(msgspec.Struct, rename="camel"):
    name: Text = None
    projected: _Projected | None = None


class PodSpecForm(msgspec.Struct, rename="camel"):
    """spec of a Pod template."""

    restart_policy: Text = None
    service_account_name: Text = None
    service_account: Text = None
    containers: list[_Container] | None = None
    init_containers: list[_Container] | None = None
    volumes: list[_Volume] | None = None
    security_context: _Any | None = None
    termination_grace_period_seconds: int | None = None
    node_selector: Words = None
    tolerations: list[dict[str, str | int | None]] | None = None
    scheduling_gates: list[dict[str, Any]] | None = None
    affinity: _Affinity | None = None
    node_name: Text = None
    priority_class_name: Text = None


class MetadataForm(msgspec.Struct):
    """metadata of a template."""

    labels: Words = None
    annotations: Words = None


class PodTemplateForm(msgspec.Struct):
    """A Pod template."""

    metadata: MetadataForm | None = None
    spec: PodSpecForm | None = None
