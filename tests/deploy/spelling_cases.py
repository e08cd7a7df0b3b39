"""Two spellings of one template: a person's, and that of a client with Go types."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from inplace.common.kube.resources import KubeObject
from tests.controller.manifests import changed, jobset
from tests.deploy.crd_cases import SPEC

JOB: Final = "spec.replicatedJobs.0.template"
PODS: Final = f"{SPEC}.template"
WORKER: Final = f"{PODS}.spec.containers.0"

MOUNT: Final = {"name": "a", "mountPath": "/a"}
SPREAD: Final = {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "ScheduleAnyway"}


def volume(**source: Any) -> KubeObject:
    """Return a volume."""
    return {"name": "a"} | source


SPELLINGS: Final[tuple[tuple[str, str, Any, Any], ...]] = (
    ("job_metadata", f"{JOB}.metadata", None, {}),
    ("job_created_never", f"{JOB}.metadata", None, {"creationTimestamp": None}),
    ("pod_metadata", f"{PODS}.metadata", None, {}),
    ("pod_created_never", f"{PODS}.metadata", None, {"creationTimestamp": None}),
    ("labels_empty", f"{PODS}.metadata", {"labels": {}, "annotations": {}}, {}),
    ("labels_null", f"{PODS}.metadata", {"labels": None}, {}),
    ("resources", f"{WORKER}.resources", None, {}),
    ("limits_empty", f"{WORKER}.resources", {"limits": {}, "requests": None}, {}),
    ("cpu_in_thousandths", f"{WORKER}.resources", {"limits": {"cpu": "1000m"}}, {"limits": {"cpu": "1"}}),
    ("cpu_as_a_number", f"{WORKER}.resources", {"limits": {"cpu": 1}}, {"limits": {"cpu": "1"}}),
    ("cpu_as_a_fraction", f"{WORKER}.resources", {"limits": {"cpu": 0.5}}, {"limits": {"cpu": "500m"}}),
    ("memory", f"{WORKER}.resources", {"requests": {"memory": "1024Mi"}}, {"requests": {"memory": "1Gi"}}),
    ("memory_of_the_pod", f"{PODS}.spec.resources", {"limits": {"memory": "1024Mi"}}, {"limits": {"memory": "1Gi"}}),
    ("overhead", f"{PODS}.spec.overhead", {"cpu": "1000m"}, {"cpu": "1"}),
    ("args_empty", f"{WORKER}.args", [], None),
    ("command_empty", f"{WORKER}.command", None, []),
    ("env_empty", f"{WORKER}.env", [{"name": "A", "value": ""}], [{"name": "A"}]),
    ("stdin", f"{WORKER}.stdin", False, None),
    ("host_network", f"{PODS}.spec.hostNetwork", False, None),
    ("selector_empty", f"{PODS}.spec.nodeSelector", {}, None),
    ("tolerations_empty", f"{PODS}.spec.tolerations", [], None),
    ("claims_of_volumes_empty", f"{PODS}.spec.volumes", [], None),
    ("init_containers_null", f"{PODS}.spec.initContainers", [], None),
    ("host_name_empty", f"{PODS}.spec.hostname", "", None),
    (
        "divisor",
        f"{WORKER}.env",
        [{"name": "A", "valueFrom": {"resourceFieldRef": {"resource": "limits.cpu"}}}],
        [{"name": "A", "valueFrom": {"resourceFieldRef": {"resource": "limits.cpu", "divisor": "0"}}}],
    ),
    (
        "size_limit",
        f"{PODS}.spec.volumes",
        [{"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": "1024Mi"}}],
        [{"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": "1Gi"}}],
    ),
    (
        "volume_claim_of_a_pod",
        f"{PODS}.spec.volumes",
        [{"name": "a", "ephemeral": {"volumeClaimTemplate": {"spec": {"resources": {"requests": {"storage": 1024}}}}}}],
        [
            {
                "name": "a",
                "ephemeral": {
                    "volumeClaimTemplate": {
                        "metadata": {"creationTimestamp": None},
                        "spec": {"resources": {"requests": {"storage": "1Ki"}}},
                    }
                },
            }
        ],
    ),
    (
        "more_variables_than_the_short_list_counts",
        f"{WORKER}.env",
        [{"name": f"A{index}", "value": ""} for index in range(101)],
        [{"name": f"A{index}"} for index in range(101)],
    ),
    ("protocol", f"{WORKER}.ports", [{"containerPort": 80}], [{"containerPort": 80, "protocol": "TCP"}]),
    ("protocol_empty", f"{WORKER}.ports", [{"containerPort": 80}], [{"containerPort": 80, "protocol": ""}]),
    ("volume_of_a_default_user", f"{PODS}.spec.volumes", [volume(rbd={})], [volume(rbd={"user": ""})]),
    ("mount_not_read_only", f"{WORKER}.volumeMounts", [MOUNT | {"readOnly": False}], [MOUNT]),
)

CHANGES: Final[tuple[tuple[str, str, Any, Any], ...]] = (
    ("image", f"{WORKER}.image", "worker:1", "worker:2"),
    ("command", f"{WORKER}.command", ["a"], ["b"]),
    ("command_shorter", f"{WORKER}.command", ["a", ""], ["a"]),
    ("args", f"{WORKER}.args", ["a", "b"], ["b", "a"]),
    ("env_value", f"{WORKER}.env", [{"name": "A", "value": "a"}], [{"name": "A", "value": "b"}]),
    ("env_value_emptied", f"{WORKER}.env", [{"name": "A", "value": "a"}], [{"name": "A"}]),
    ("amount", f"{PODS}.spec.resources", {"limits": {"cpu": "1000m"}}, {"limits": {"cpu": "1001m"}}),
    ("amount_nothing", f"{PODS}.spec.resources", {"limits": {"cpu": 0}}, {"limits": {}}),
    ("user", f"{WORKER}.securityContext", {"runAsUser": 0}, {}),
    ("deadline", f"{PODS}.spec.activeDeadlineSeconds", None, 0),
    (
        "volume",
        f"{PODS}.spec.volumes",
        [{"name": "a", "emptyDir": {}}],
        [{"name": "a", "emptyDir": {"medium": "Memory"}}],
    ),
    (
        "everybodys_pods_or_nobodys",
        f"{PODS}.spec.topologySpreadConstraints",
        [SPREAD | {"labelSelector": {}}],
        [SPREAD],
    ),
    ("node_selector_with_an_empty_value", f"{PODS}.spec.affinity", {"labels": {"a": ""}}, {"labels": {}}),
    ("protocol", f"{WORKER}.ports", [{"containerPort": 80}], [{"containerPort": 80, "protocol": "UDP"}]),
    (
        "volume_of_another_user",
        f"{PODS}.spec.volumes",
        [volume(cephfs={"user": ""})],
        [volume(cephfs={"user": "admin"})],
    ),
    ("another_type", f"{PODS}.spec.resources", {"limits": "none"}, {"limits": {}}),
    ("schedule_group", f"{PODS}.spec.schedulingGroup", {"podGroupName": "a"}, {"podGroupName": "b"}),
    (
        "a_name_like_a_path",
        f"{PODS}.spec.somethingNew",
        {"a\n.b\n" * 99: {"c\n" * 99: 1}},
        {"a\n.b\n" * 99: {"c\n" * 99: 2}},
    ),
    ("the_last_of_many", f"{WORKER}.args", ["a"] * 1000, [*["a"] * 999, "b"]),
    ("more_items_than_are_looked_into", f"{WORKER}.envFrom", [{"prefix": ""}] * 1001, [{}] * 1001),
    ("a_field_of_tomorrow", f"{PODS}.spec.somethingNew", {"deep": [{"er": 1}]}, {"deep": [{"er": 2}]}),
)


@dataclass(frozen=True, slots=True)
class Pair:
    """A field's two values; each is once the first one, in a running JobSet and in a suspended one."""

    claim: str
    path: str
    one: Any
    other: Any

    def manifests(self) -> Iterator[tuple[KubeObject, Any]]:
        """Yield manifests, each with the value that the field gets by an update."""
        for suspended in (False, True):
            for way, before, after in (("there", self.one, self.other), ("back", self.other, self.one)):
                name = f"{way}-{'suspended' if suspended else 'runs'}"
                yield changed(jobset(name, suspend=suspended), self.path, before), after


SPELLED: Final = tuple(Pair(*each) for each in SPELLINGS)
CHANGED: Final = tuple(Pair(*each) for each in CHANGES)
