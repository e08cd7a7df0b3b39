"""
Find the agent, the workers and the mode in a pod template.

Reads raw templates of any origin: ours, upstream's, and incomplete ones.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final, Literal

from inplace.common.agent_command import AGENT_COMMAND, ENTRYPOINT_GUARD, GUARD, GUARD_PROGRAM, agent_arguments
from inplace.common.jobset.requests import fence_after_s
from inplace.common.jobset.scopes import DIVIDING
from inplace.common.jobset.settings import carried
from inplace.common.kube.resources import KubeObject
from inplace.common.wire import names as wire
from inplace.common.wire.in_place import failure_policy_of

Place = Literal["sidecar", "supervisor"]  # where the agent is: beside the worker's container, or in it
SERVICE_ACCOUNT_DIR: Final = "/var/run/secrets/kubernetes.io/serviceaccount"  # where programs look for their token
UPSTREAM_PROGRAM: Final = "in-place-restart-agent"
RUN: Final = "run"
# What kubelet would make of a field, for one Pod among many.
SAMPLES: Final[Mapping[str, str]] = {
    "metadata.namespace": "default",
    "metadata.name": "pod-0",
    "metadata.uid": "00000000-0000-0000-0000-000000000000",
    "status.podIP": "10.0.0.1",
}
_UID: Final = "00000000-0000-0000-0000-000000000001"
_SETTINGS: Final = frozenset(wire.SETTINGS.values()) - {wire.MEMBERS}  # the controller's own, on Pods
# As agent/settings/config.py has them.
_OURS: Final = ("NAMESPACE", "RESTART_POD_IN_PLACE_EXIT_CODE", "BARRIER_PATH", "BARRIER_PORT")


@dataclass(frozen=True)
class Container:
    """One container of a pod template.

    Args:
        raw: as it stands in the template, for changes in place.
        path: where it stands in the JobSet.
        is_init: it is one of initContainers.
        annotations: of its Pod: the JobSet's name and uid, and settings.
    """

    raw: KubeObject
    path: str
    is_init: bool
    annotations: Mapping[str, Any] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return str(self.raw.get("name", ""))

    @property
    def is_sidecar(self) -> bool:
        """Say whether kubelet runs it beside the worker."""
        return self.is_init and self.raw.get("restartPolicy") == "Always"

    @property
    def has_entrypoint_guard(self) -> bool:
        """Say whether its program, which only its image knows, may start behind a guard."""
        return not self.raw.get("command") and ENTRYPOINT_GUARD in self.env

    @property
    def words(self) -> list[str]:
        """Return command and arguments."""
        return [*(self.raw.get("command") or ()), *(self.raw.get("args") or ())]

    @cached_property
    def env(self) -> Mapping[str, KubeObject]:
        """Return its variables by name; of two of one name kubelet takes the last."""
        return {str(entry.get("name")): entry for entry in self.raw.get("env") or ()}

    @property
    def values(self) -> dict[str, str]:
        """Return the values of its variables in one Pod as far as the manifest tells them."""
        values: dict[str, str] = {}
        for name, entry in self.env.items():
            if (path := field_path(entry)) is not None:
                key = path.partition("['")[2].removesuffix("']")
                values[name] = str(self.annotations.get(key, SAMPLES.get(path, "")))
            elif isinstance(entry.get("value"), str):
                known = lambda match: values.get(match[1], match[0])  # noqa: E731 - kubelet's $(NAME), of those before it
                values[name] = re.sub(r"\$\((\w+)\)", known, entry["value"])
        return values

    def path_of(self, variable: str) -> str:
        """Return where a variable stands, or has to stand."""
        return f'{self.path}.env[name="{variable}"]'

    def calls(self, subcommand: str) -> bool:
        """Say whether the command line is the agent's with this subcommand, by itself or inside a shell's text."""
        spellings = [f"{AGENT_COMMAND} {subcommand}"]
        spellings += [f"{GUARD_PROGRAM} "] if subcommand == GUARD else []
        return self.arguments(subcommand) is not None or any(
            spelling in word for word in self.words for spelling in spellings
        )

    def arguments(self, subcommand: str) -> list[str] | None:
        """Return the agent's arguments from this subcommand on; None where a shell's text may hold them."""
        found = agent_arguments(self.words)
        return found if found and found[0] == subcommand else None

    def mount_of(self, file: str) -> Mapping[str, Any] | None:
        """Return the volumeMount that holds a file; None when the container itself does."""
        mounts: list[Mapping[str, Any]] = [
            mount
            for mount in self.raw.get("volumeMounts") or ()
            if file.startswith(str(mount.get("mountPath", "")).rstrip("/") + "/")
        ]
        return max(mounts, key=lambda mount: len(str(mount.get("mountPath"))), default=None)

    @property
    def has_token_mount(self) -> bool:
        """Say whether it mounts a volume where programs look for the Pod's token."""
        mounts = self.raw.get("volumeMounts") or ()
        return any(str(mount.get("mountPath", "")).rstrip("/") == SERVICE_ACCOUNT_DIR for mount in mounts)

    @property
    def restart_depth(self) -> str:
        """Return how deep an agent's restart goes: what its variable says, else `process` where it has a guard."""
        said = self.values.get("RESTART_DEPTH", "").lower()
        return said or (wire.DEPTH_PROCESS if self.values.get("LINK_FILE") else wire.DEPTH_CONTAINERS)

    @property
    def has_devices(self) -> bool:
        """Say whether it gets a device, such as nvidia.com/gpu."""
        limits = (self.raw.get("resources") or {}).get("limits") or {}
        return any("/" in name for name in limits)

    @property
    def is_agent_alone(self) -> bool:
        """Say whether this is a sidecar's agent: its program without a worker, or its variables."""
        if self.has_agent or self.is_upstream_supervisor:
            return False
        words = self.words
        if {"JOBSET_NAME", "POD_NAME"} <= self.env.keys():
            return True
        image = str(self.raw.get("image", "")).rpartition("/")[2]
        is_image = image.startswith((AGENT_COMMAND, UPSTREAM_PROGRAM))
        return agent_arguments(words) is not None or (not self.raw.get("command") and is_image)

    @property
    def has_agent(self) -> bool:
        """Say whether its command line starts with the agent's program."""
        return any(self.calls(subcommand) for subcommand in (RUN, GUARD))

    @property
    def is_upstream_supervisor(self) -> bool:
        """Say whether upstream's contract makes the agent the worker's parent."""
        return "WORKER_COMMAND" in self.env

    @property
    def has_upstream_names(self) -> bool:
        """Say whether the agent would take upstream's defaults: no variable of ours is set."""
        return not any(name in self.env for name in _OURS)


@dataclass(frozen=True)
class Member:
    """One replicatedJob with the Pods of its template.

    Args:
        raw: the replicatedJob.
        path: where it stands in the JobSet.
        metadata: of the JobSet.
    """

    raw: KubeObject
    path: str
    metadata: KubeObject = field(default_factory=dict)

    @property
    def name(self) -> str:
        return str(self.raw.get("name", ""))

    @property
    def annotations(self) -> Mapping[str, Any]:
        """Return the annotations of the JobSet."""
        return self.metadata.get("annotations") or {}

    @property
    def settings(self) -> dict[str, Any]:
        """Return the settings that its Pods carry as annotations: the Pod template's, else the JobSet's."""
        metadata = (self.job_spec.get("template") or {}).get("metadata")
        given = metadata.get("annotations") if isinstance(metadata, dict) else None
        own = {name: text for name, text in given.items() if name in _SETTINGS} if isinstance(given, dict) else {}
        own |= carried(given) if isinstance(given, dict) else {}
        written = {wire.RESTART_SCOPE: self.name if self.annotations.get(wire.RESTART_SCOPE) in DIVIDING else ""}
        template = (self.template.get("metadata") or {}).get("annotations") or {}
        if wire.MEMBERS in {**self.annotations, **template}:
            written |= {wire.RESTART_SCOPE: self.name, wire.MEMBERS: "*"}  # or its Pods' host names
        after_s = fence_after_s(self.annotations)
        if after_s is not None and not self.job_spec.get("podFailurePolicy"):
            written[wire.FENCE_AFTER] = str(after_s)
        return carried(self.annotations) | own | written

    @property
    def template(self) -> KubeObject:
        """Return the Job template."""
        template: KubeObject = self.raw.get("template") or {}
        return template

    @property
    def job_spec(self) -> KubeObject:
        """Return the Job template's spec."""
        spec: KubeObject = self.template.get("spec") or {}
        return spec

    @property
    def job_path(self) -> str:
        """Return where job_spec stands."""
        return f"{self.path}.template.spec"

    @property
    def pod_spec(self) -> KubeObject:
        """Return the Pod template's spec."""
        spec: KubeObject = (self.job_spec.get("template") or {}).get("spec") or {}
        return spec

    @property
    def pod_path(self) -> str:
        """Return where pod_spec stands."""
        return f"{self.job_path}.template.spec"

    @property
    def runs_as_root(self) -> bool:
        """Say whether the Pod asks for user 0 in all of its containers."""
        return (self.pod_spec.get("securityContext") or {}).get("runAsUser") == 0

    @property
    def has_opted_out(self) -> bool:
        """Say whether its Pods are no part of the group."""
        return wire.DISABLE in ((self.template.get("metadata") or {}).get("annotations") or {})

    @property
    def pods(self) -> int:
        """Return how many Pods run at once."""
        counts = (self.raw.get("replicas", 1), self.job_spec.get("parallelism", 1))
        return counts[0] * counts[1] if all(isinstance(count, int) for count in counts) else 0

    @cached_property
    def containers(self) -> tuple[Container, ...]:
        """Return the regular containers."""
        return tuple(self._containers("containers"))

    @cached_property
    def inits(self) -> tuple[Container, ...]:
        """Return the init containers, sidecars among them."""
        return tuple(self._containers("initContainers"))

    @property
    def every_container(self) -> tuple[Container, ...]:
        """Return all containers, the init containers first."""
        return (*self.inits, *self.containers)

    @property
    def has_rules(self) -> bool:
        """Say whether kubelet starts some container anew by a rule."""
        return any(container.raw.get("restartPolicyRules") for container in self.every_container)

    @property
    def does_without_rules(self) -> bool:
        """Say whether a sidecar was made for nodes that have no rules: none is there, and no clean containers come."""
        agent = self.sidecar_agent
        return agent is not None and not self.has_rules and agent.values.get("CLEAN_AFTER_FAILURES") == "0"

    @property
    def sidecar_agent(self) -> Container | None:
        """Return the agent beside the worker, in any list of containers."""
        return next((container for container in self.every_container if container.is_agent_alone), None)

    @property
    def supervisor(self) -> Container | None:
        """Return the container in which guard and agent are together."""
        wrapped = (container for container in self.containers if container.calls(RUN))
        return next(wrapped, next((one for one in self.containers if one.is_upstream_supervisor), None))

    @property
    def agent(self) -> Container | None:
        """Return the agent's container in either place."""
        return self.supervisor or self.sidecar_agent

    @property
    def place(self) -> Place | None:
        """Return where the template has the agent; None without one."""
        return "supervisor" if self.supervisor is not None else "sidecar" if self.sidecar_agent is not None else None

    @property
    def is_guarded(self) -> bool:
        """Say whether some worker has a guard: then guards are the barrier, and no startup probe is needed."""
        return self.place == "sidecar" and any(worker.calls(GUARD) for worker in self.workers)

    @property
    def workers(self) -> tuple[Container, ...]:
        """Return the regular containers but for an agent that stands among them."""
        return tuple(container for container in self.containers if not container.is_agent_alone)

    @property
    def helpers(self) -> tuple[Container, ...]:
        """Return the workers that only stand beside those that train: no agent holds them back or restarts their Pod.

        They start when kubelet likes, and a restart in place starts them anew with all others.
        """
        if self.place != "sidecar":
            return ()
        helping = tuple(one for one in self.workers if not one.raw.get("restartPolicyRules") and not one.has_agent)
        return helping if len(helping) < len(self.workers) else ()

    def _containers(self, kind: str) -> Iterator[Container]:
        for index, raw in enumerate(self.pod_spec.get(kind) or ()):
            label = f'name="{raw["name"]}"' if raw.get("name") else str(index)
            owner = {wire.JOBSET_NAME: self.metadata.get("name") or "jobset", wire.JOBSET_UID: _UID}
            yield Container(raw, f"{self.pod_path}.{kind}[{label}]", kind == "initContainers", owner | self.settings)


def members(jobset: KubeObject) -> Iterator[Member]:
    """Yield every replicatedJob of a JobSet."""
    for index, raw in enumerate((jobset.get("spec") or {}).get("replicatedJobs") or ()):
        label = f'name="{raw["name"]}"' if raw.get("name") else str(index)
        yield Member(raw, f"spec.replicatedJobs[{label}]", jobset.get("metadata") or {})


def group_of(jobset: KubeObject) -> list[Member]:
    """Return the replicatedJobs that restart together."""
    return [member for member in members(jobset) if not member.has_opted_out]


def is_in_place(jobset: KubeObject) -> bool:
    """Say whether a JobSet asks for restarts in place."""
    return (failure_policy_of(jobset) or {}).get("restartStrategy") == wire.IN_PLACE_RESTART


def field_path(entry: Mapping[str, Any] | None) -> str | None:
    """Return what the downward API makes of a variable; None when it is something else."""
    source = (entry or {}).get("valueFrom")
    reference = source.get("fieldRef") if isinstance(source, dict) else None
    path = reference.get("fieldPath") if isinstance(reference, dict) else None
    return path if isinstance(path, str) else None
