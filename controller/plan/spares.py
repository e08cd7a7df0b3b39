"""
Hold room for Pods that will be replaced: a Job of placeholder Pods with a negative priority (docs/adr/0095).

The Job is the JobSet's, so it goes with it. It has no place in the spec: no step counts it, and its Pods lack the label
by which this controller and the headless Service find Pods. It is made when the group runs, so that spares never
compete with the first Pods for nodes or images, and it is deleted while the JobSet is suspended or finished.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from decimal import Decimal
from typing import Any, Final

from inplace.common.agent_command import HOLD_COMMAND
from inplace.common.injection.agent_pieces import spare_container
from inplace.common.injection.container_resources import amounts
from inplace.common.injection.pod_roles import Container
from inplace.common.jobset.settings import SPARES
from inplace.common.jobset.spares import largest, spares_name
from inplace.common.kube.quantity import parse_quantity, quantity_text
from inplace.common.kube.resources import JOBS, KubeObject
from inplace.common.protocol.bounds import INT32_MAX
from inplace.common.wire import names as wire
from inplace.controller.plan.actions import CreateJob, CreateSpares, DeleteJob, ResizeJob
from inplace.controller.plan.draft import Draft
from inplace.controller.plan.jobs import owner_reference

LOOK_AGAIN_S: Final = 30.0  # while Pods of the Job are missing: the API server may refuse them


def hold_spares(draft: Draft) -> bool:
    """Create, resize or delete the Job of the spares."""
    jobset, wanted = draft.jobset, _wanted(draft)
    job = draft.observed.jobs.get(spares_name(jobset.name))
    if job is None:
        if wanted and all(scope.synced for scope in jobset.scopes.values()):
            draft.add(CreateSpares(CreateJob(jobset, largest(jobset.replicated_jobs), 0), wanted))
        return False
    if not wanted or job.condition("Failed") is not None or job.condition("Complete") is not None:
        draft.delete(job, DeleteJob.SPARES)
    elif job.spec.parallelism != wanted and not job.is_leaving:
        draft.add(ResizeJob(job.metadata.name, job.metadata.uid, wanted))
    elif (job.status.active or 0) < wanted:
        draft.look_again(LOOK_AGAIN_S)
    return False


def without_image(draft: Draft) -> Iterator[str]:
    """Yield that this controller has no image which spares could run."""
    if draft.jobset.spares and not draft.observed.adds_agents:
        yield (
            f"{SPARES.where}: expected a controller that was started with --agent-image, which "
            "spares run, saw one without; no spare is held; add it to the controller's Deployment"
        )


def _wanted(draft: Draft) -> int:
    """Return how many spares to hold now."""
    jobset = draft.jobset
    is_over = jobset.suspended or jobset.is_finished
    return 0 if is_over or not draft.observed.adds_agents else jobset.spares


# Build the Job of the spares: each asks for what a Pod of the group asks for, and has its images pulled. Pure.
#
# A spare runs the agent's image and nothing of the user's: no program need be in the worker's image. That one is a
# volume which no container mounts, so that kubelet pulls it. What the scheduler reads is the user's: node selector,
# tolerations and node affinity.
COPIED: Final = (
    "nodeSelector",
    "tolerations",
    "runtimeClassName",
    "schedulerName",
    "imagePullSecrets",
    "serviceAccountName",
)
"""Of the user's Pod: which nodes take it, and with which secrets its images are pulled. No token is mounted."""

GRACE_S: Final = 1  # a spare ends at once; kubelet still frees its devices before the Pod is gone
APART_WEIGHT: Final = 100  # of the preference for nodes without the group's Pods, and without another spare
_IN_BYTES: Final = ("memory", "storage")

Amounts = dict[str, Decimal]


def build_spares(action: CreateSpares, made: KubeObject, image: str, *, pulls: bool) -> KubeObject:
    """Return the Job.

    Args:
        action: how many spares, for Pods of which replicatedJob.
        made: a Job of that, as the controller makes it.
        image: the agent's.
        pulls: nodes have image volumes.
    """
    jobset, job = action.place.jobset, action.place.job
    pod = made["spec"]["template"]["spec"]
    users = ((job.template().get("spec") or {}).get("template") or {}).get("spec") or {}
    labels = {wire.SPARE_OF: jobset.name}
    node_affinity = (users.get("affinity") or {}).get("nodeAffinity")
    spec = {
        **{name: users[name] for name in COPIED if users.get(name)},
        "affinity": ({"nodeAffinity": node_affinity} if node_affinity else {}) | _apart(jobset.name),
        "priorityClassName": wire.SPARE_PRIORITY_CLASS,
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": GRACE_S,
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "containers": [spare_container(image, HOLD_COMMAND, _resources(pod))],
        "volumes": _image_volumes(pod, image) if pulls else [],
    }
    return {
        "apiVersion": JOBS.api_version,
        "kind": JOBS.kind,
        "metadata": {
            "name": action.name,
            "namespace": jobset.namespace,
            "labels": labels,
            "ownerReferences": [owner_reference(jobset)],
        },
        "spec": {
            "completionMode": "Indexed",
            "parallelism": action.count,
            "completions": action.count,
            "backoffLimit": INT32_MAX,
            "backoffLimitPerIndex": INT32_MAX,
            "template": {"metadata": {"labels": labels}, "spec": spec},
        },
    }


def requests_of(pod: Mapping[str, Any]) -> Amounts:
    """Return what the scheduler counts for a Pod of this spec, without the overhead of its runtime class.

    Source: k8s.io/component-helpers resource/helpers.go, PodRequests.
    """
    running, most = Amounts(), Amounts()
    for raw in pod.get("initContainers") or ():
        container = Container(raw, "", is_init=True)
        with_it = _sum(running, amounts(container, "requests"))
        running = with_it if container.is_sidecar else running
        most = _most(most, with_it)
    for raw in pod.get("containers") or ():
        running = _sum(running, amounts(Container(raw, "", is_init=False), "requests"))
    whole = (pod.get("resources") or {}).get("requests") or {}
    said = {str(name): amount for name, text in whole.items() if (amount := parse_quantity(text)) is not None}
    return _most(most, running) | said


def _resources(pod: Mapping[str, Any]) -> KubeObject:
    """Return requests and equal limits: devices need both, and quotas of limits ask for them."""
    asked = {
        name: quantity_text(amount, is_bytes=name.endswith(_IN_BYTES) or name.startswith("hugepages-"))
        for name, amount in requests_of(pod).items()
        if amount > 0
    }
    return {"requests": asked, "limits": dict(asked)} if asked else {}


def _apart(jobset_name: str) -> KubeObject:
    """Return the preference for nodes that hold nothing of the group."""
    terms = [
        {
            "weight": APART_WEIGHT,
            "podAffinityTerm": {
                "topologyKey": "kubernetes.io/hostname",
                "labelSelector": {"matchLabels": {label: jobset_name}},
            },
        }
        for label in (wire.JOBSET_NAME, wire.SPARE_OF)
    ]
    return {"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": terms}}


def _image_volumes(pod: Mapping[str, Any], own: str) -> list[KubeObject]:
    """Return the images of a Pod's containers as volumes, but for the spare's own."""
    containers = [*(pod.get("initContainers") or ()), *(pod.get("containers") or ())]
    policies = {one.get("image"): one.get("imagePullPolicy") for one in containers}
    return [
        {"name": f"image-{place}", "image": {"reference": image} | ({"pullPolicy": policy} if policy else {})}
        for place, (image, policy) in enumerate(policies.items())
        if image and image != own
    ]


def _sum(first: Amounts, second: Amounts) -> Amounts:
    return {name: first.get(name, Decimal(0)) + second.get(name, Decimal(0)) for name in {**first, **second}}


def _most(first: Amounts, second: Amounts) -> Amounts:
    return {name: max(first.get(name, Decimal(0)), second.get(name, Decimal(0))) for name in {**first, **second}}
