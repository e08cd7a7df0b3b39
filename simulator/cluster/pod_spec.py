"""
Read the containers of a Pod manifest in their starting order, with their restart rules and probes.

Source: k8s.io/api/core/v1 (Container, ContainerRestartRule, Probe).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Any

from inplace.common.kube.resources import KubeObject

GRACE_S_DEFAULT = 30.0  # terminationGracePeriodSeconds


class Role(Enum):
    """The role of a container in its Pod."""

    INIT = "init"  # runs to its end before the next one starts
    SIDECAR = "sidecar"  # an init container with restartPolicy Always: the next one starts once it has started
    REGULAR = "regular"


class RestartAction(Enum):
    """The restart that an exit causes."""

    RESTART = "Restart"
    RESTART_ALL = "RestartAllContainers"
    STAY = "stay"


@dataclass(frozen=True, slots=True)
class RestartRule:
    """One entry of restartPolicyRules."""

    action: RestartAction
    negated: bool
    values: frozenset[int]

    def matches(self, exit_code: int) -> bool:
        """Return whether the rule selects this exit code."""
        return (exit_code in self.values) != self.negated


@dataclass(frozen=True, slots=True)
class Probe:
    """A probe: a GET of `path`, a `command`, or without both a connection to `port`. Times are in seconds."""

    path: str | None
    port: int
    command: tuple[str, ...] | None
    initial_delay_s: float
    period_s: float
    timeout_s: float
    failure_threshold: int
    success_threshold: int


@dataclass(frozen=True, slots=True)
class ContainerSpec:
    """One container. `manifest` is the raw object, for what only the runtime reads."""

    name: str
    role: Role
    restart_policy: str
    rules: tuple[RestartRule, ...]
    startup: Probe | None
    readiness: Probe | None
    liveness: Probe | None
    manifest: dict[str, Any]

    def after_exit(self, exit_code: int) -> RestartAction:
        """Return the restart that this exit causes: by the first matching rule, else by the restart policy."""
        for rule in self.rules:
            if rule.matches(exit_code):
                return rule.action
        if self.restart_policy == "Always" or (self.restart_policy == "OnFailure" and exit_code != 0):
            return RestartAction.RESTART
        return RestartAction.STAY


@dataclass(frozen=True, slots=True)
class PodSpec:
    """The containers of a Pod: init containers and sidecars in their order, then the regular ones."""

    containers: tuple[ContainerSpec, ...]
    grace_s: float

    @property
    def restarts_all(self) -> bool:
        """Return whether a rule restarts all containers; the Pod then has the condition for it."""
        return any(rule.action is RestartAction.RESTART_ALL for c in self.containers for rule in c.rules)


def parse_pod(pod: KubeObject) -> PodSpec:
    """Read a Pod object, whose defaults the API server has filled in or not."""
    spec = pod["spec"]
    policy = spec.get("restartPolicy") or "Always"
    containers = [_init_container(c, policy) for c in spec.get("initContainers") or ()]
    containers += [_container(c, Role.REGULAR, c.get("restartPolicy") or policy) for c in spec["containers"]]
    grace_s = spec.get("terminationGracePeriodSeconds")
    return PodSpec(tuple(containers), GRACE_S_DEFAULT if grace_s is None else float(grace_s))


def _init_container(manifest: dict[str, Any], pod_policy: str) -> ContainerSpec:
    own = manifest.get("restartPolicy")
    if own == "Always":
        return _container(manifest, Role.SIDECAR, "Always")
    # An init container that succeeded never runs again, whatever the Pod's policy is.
    inherited = "OnFailure" if pod_policy == "Always" else pod_policy
    return _container(manifest, Role.INIT, own or inherited)


def _container(manifest: dict[str, Any], role: Role, restart_policy: str) -> ContainerSpec:
    ports = {port["name"]: port["containerPort"] for port in manifest.get("ports") or () if "name" in port}
    rules = tuple(
        RestartRule(
            RestartAction(rule["action"]),
            rule["exitCodes"]["operator"] == "NotIn",
            frozenset(rule["exitCodes"].get("values") or ()),
        )
        for rule in manifest.get("restartPolicyRules") or ()
    )
    return ContainerSpec(
        name=manifest["name"],
        role=role,
        restart_policy=restart_policy,
        rules=rules,
        startup=_probe(manifest.get("startupProbe"), ports),
        readiness=_probe(manifest.get("readinessProbe"), ports),
        liveness=_probe(manifest.get("livenessProbe"), ports),
        manifest=manifest,
    )


def _probe(manifest: dict[str, Any] | None, ports: dict[str, int]) -> Probe | None:
    """Read a probe. A port of an unknown name is 0: nothing answers there, so no barrier is lifted."""
    if manifest is None:
        return None
    http = manifest.get("httpGet")
    command = (manifest.get("exec") or {}).get("command")
    port = (http or manifest.get("tcpSocket") or manifest.get("grpc") or {}).get("port", 0)
    is_plain = http is not None and str(http.get("scheme") or "HTTP").upper() == "HTTP"
    return Probe(
        path=((http or {}).get("path") or "/") if is_plain else None,
        port=ports.get(port, 0) if isinstance(port, str) else int(port),
        command=None if command is None else tuple(command),
        initial_delay_s=float(manifest.get("initialDelaySeconds") or 0),
        period_s=float(manifest.get("periodSeconds") or 10),
        timeout_s=float(manifest.get("timeoutSeconds") or 1),
        failure_threshold=int(manifest.get("failureThreshold") or 3),
        success_threshold=int(manifest.get("successThreshold") or 1),
    )
