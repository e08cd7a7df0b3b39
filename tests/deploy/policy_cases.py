"""Manifests that only the admission policy refuses: V24 to V26, the restart scope, updates of Pod templates."""

from __future__ import annotations

from typing import Final

from tests.controller.manifests import changed, jobset, replicated_job
from tests.deploy import scheduling_cases
from tests.deploy.crd_cases import NO_POLICY, SPEC, SUSPENDED, Create, Update
from tests.deploy.spec_cases import claim, claims, plain

MOUNTED: Final = replicated_job(
    "a",
    template={
        "spec": {
            "containers": [
                {"name": "worker", "image": "worker:1", "volumeMounts": [{"name": "data", "mountPath": "/data"}]}
            ]
        }
    },
)
SHADOWED: Final = changed(MOUNTED, "template.spec.template.spec.volumes", [{"name": "data", "emptyDir": {}}])
POD_TEMPLATE: Final = f"{SPEC}.template"
POD_SPEC: Final = f"{SPEC}.template.spec"
WORKER: Final = f"{POD_SPEC}.containers.0"
SIZED_CONTAINER: Final = {"name": "worker", "image": "worker:1", "resources": {"requests": {"cpu": "1"}}}
SIZED: Final = changed(
    changed(SUSPENDED, f"{POD_SPEC}.containers", [SIZED_CONTAINER]),
    f"{POD_SPEC}.initContainers",
    [SIZED_CONTAINER | {"name": "init"}],
)
EPHEMERAL_VOLUME: Final = {
    "name": "scratch",
    "ephemeral": {"volumeClaimTemplate": {"spec": {"resources": {"requests": {"storage": "1Gi"}}}}},
}
SCOPE: Final = {"annotations": {"inplace.dev/restart-scope": "Group"}}
POLICY_CREATES: Final = (
    *scheduling_cases.POLICY_CREATES,
    Create("restart_scope", jobset() | {"metadata": jobset()["metadata"] | SCOPE}),
    Create(
        "restart_scope_unknown",
        jobset() | {"metadata": jobset()["metadata"] | {"annotations": {"inplace.dev/restart-scope": "Pod"}}},
        ('metadata.annotations[inplace.dev/restart-scope]: found "Pod"', "expected JobSet, Group or ReplicatedJob"),
    ),
    Create("v25_claim_mounted", plain(MOUNTED, volumeClaimPolicies=claims(claim("data")))),
    Create(
        "v25_claim_mounted_by_an_init_container",
        plain(
            changed(
                replicated_job("a"),
                "template.spec.template.spec.initContainers",
                MOUNTED["template"]["spec"]["template"]["spec"]["containers"],
            ),
            volumeClaimPolicies=claims(claim("data")),
        ),
    ),
    *(
        Create(
            f"{name}_{kind}_beside_claims",
            plain(
                MOUNTED,
                replicated_job("b", template={"spec": {name: value}}),
                volumeClaimPolicies=claims(claim("data")),
            ),
            words,
        )
        for name in ("containers", "initContainers", "volumes")
        for kind, value, words in (
            ("null", None, ()),
            ("text", "a", (f"spec.replicatedJobs[1].template.spec.template.spec.{name}", "must be of type array")),
            ("holding_null", [None], (f"template.spec.template.spec.{name}[0]", "must be of type object")),
        )
    ),
    Create(
        "v25_null_volume_mounts_beside_claims",
        plain(
            MOUNTED,
            replicated_job("b", template={"spec": {"containers": [{"name": "worker", "volumeMounts": None}]}}),
            volumeClaimPolicies=claims(claim("data")),
        ),
    ),
    Create(
        "v24_claim_names_repeat",
        plain(MOUNTED, volumeClaimPolicies=claims(claim("data")) + claims(claim("data"))),
        ("names must be unique for VolumeClaimPolicies template", "data", "rename"),
    ),
    Create(
        "v25_claim_not_mounted",
        plain(MOUNTED, volumeClaimPolicies=claims(claim("data"), claim("logs"))),
        ("replicatedJob containers don't have a matching volumeMount: logs from VolumeClaimPolicies", "add"),
    ),
    Create(
        "v26_claim_shadowed",
        plain(SHADOWED, volumeClaimPolicies=claims(claim("data"))),
        ("volume name conflicts with VolumeClaimPolicy template name: data", "rename"),
    ),
)
POLICY_UPDATES: Final = (
    *scheduling_cases.POLICY_UPDATES,
    Update(
        "restart_scope_added",
        "metadata.annotations",
        SCOPE["annotations"],
        ("metadata.annotations[inplace.dev/restart-scope]", "immutable", "create a new JobSet"),
    ),
    Update(
        "restart_scope_removed",
        "metadata.annotations",
        None,
        ('found "", was "Group"', "create a new JobSet"),
        jobset() | {"metadata": jobset()["metadata"] | SCOPE},
    ),
    Update(
        "another_annotation_beside_the_restart_scope",
        "metadata.annotations",
        SCOPE["annotations"] | {"a": "b"},
        (),
        jobset() | {"metadata": jobset()["metadata"] | SCOPE},
    ),
    Update("labels_while_suspended", f"{SPEC}.template.metadata", {"labels": {"a": "b"}}, (), SUSPENDED),
    Update("annotations_while_suspended", f"{SPEC}.template.metadata", {"annotations": {"a": "b"}}, (), SUSPENDED),
    Update("selector_while_suspended", f"{POD_SPEC}.nodeSelector", {"zone": "a"}, (), SUSPENDED),
    Update("tolerations_while_suspended", f"{POD_SPEC}.tolerations", [{"operator": "Exists"}], (), SUSPENDED),
    Update("gates_while_suspended", f"{POD_SPEC}.schedulingGates", [{"name": "example.com/gate"}], (), SUSPENDED),
    Update(
        "requests_while_suspended", f"{WORKER}.resources", {"requests": {"cpu": 2}, "limits": {"cpu": 4}}, (), SIZED
    ),
    Update("requests_removed_while_suspended", f"{WORKER}.resources", None, (), SIZED),
    Update("requests_added_while_suspended", f"{WORKER}.resources", {"requests": {"a.b/gpu": 8}}, (), SUSPENDED),
    Update(
        "requests_of_an_init_container_while_suspended",
        f"{POD_SPEC}.initContainers.0.resources.limits",
        {"memory": "2Gi"},
        (),
        SIZED,
    ),
    Update(
        "requests_when_resumed",
        "spec",
        changed(changed(SIZED, "spec.suspend", False), f"{WORKER}.resources.requests.cpu", "3")["spec"],
        (),
        SIZED,
    ),
    Update(
        "requests",
        f"{WORKER}.resources",
        {"requests": {"cpu": 2}},
        ("containers[0].resources.requests", "set spec.suspend to true first", "requests and limits of its containers"),
        changed(SIZED, "spec.suspend", False),
    ),
    Update(
        "resource_claims_while_suspended",
        f"{WORKER}.resources",
        {"requests": {"cpu": "1"}, "claims": [{"name": "gpu"}]},
        ("containers[0].resources.claims: field is immutable, even while suspended",),
        SIZED,
    ),
    Update(
        "requests_of_an_ephemeral_container_while_suspended",
        f"{POD_SPEC}.ephemeralContainers.0.resources.requests.cpu",
        "2",
        ("ephemeralContainers[0].resources.requests.cpu: field is immutable, even while suspended",),
        changed(SIZED, f"{POD_SPEC}.ephemeralContainers", [SIZED_CONTAINER]),
    ),
    Update(
        "requests_of_a_volume_while_suspended",
        f"{POD_SPEC}.volumes.0.ephemeral.volumeClaimTemplate.spec.resources.requests.storage",
        "2Gi",
        ("resources.requests.storage: field is immutable, even while suspended",),
        changed(SIZED, f"{POD_SPEC}.volumes", [EPHEMERAL_VOLUME]),
    ),
    Update(
        "requests_of_a_volume_named_as_resources_are_while_suspended",
        f"{POD_SPEC}.volumes.0.resources.requests",
        {"cpu": "2"},
        ("volumes[0].resources.requests: field is immutable, even while suspended",),
        changed(SIZED, f"{POD_SPEC}.volumes", [{"name": "a", "resources": {}}]),
    ),
    Update(
        "requests_of_the_pod_while_suspended",
        f"{POD_SPEC}.resources",
        {"requests": {"cpu": "2"}},
        ("spec.resources.requests: field is immutable, even while suspended",),
        SIZED,
    ),
    Update(
        "resize_policy_while_suspended",
        f"{WORKER}.resizePolicy",
        [{"resourceName": "cpu", "restartPolicy": "NotRequired"}],
        ("containers[0].resizePolicy: field is immutable, even while suspended",),
        SIZED,
    ),
    Update(
        "another_container_while_suspended",
        f"{POD_SPEC}.containers",
        [SIZED_CONTAINER, SIZED_CONTAINER | {"name": "another"}],
        ("spec.containers: field is immutable, even while suspended",),
        SIZED,
    ),
    Update(
        "containers_name_while_suspended",
        f"{WORKER}.name",
        "another",
        ("containers[0].name: field is immutable, even while suspended",),
        SIZED,
    ),
    Update(
        "image_while_suspended",
        f"{POD_SPEC}.containers.0.image",
        "worker:2",
        (
            'spec.replicatedJobs[name="workers"].template.spec.template.spec.containers[0].image: field is immutable',
            "even while suspended",
            "create a new JobSet",
        ),
        SUSPENDED,
    ),
    Update(
        "restart_policy_while_suspended",
        f"{POD_SPEC}.restartPolicy",
        "OnFailure",
        ("spec.template.spec.restartPolicy: field is immutable",),
        SUSPENDED,
    ),
    Update(
        "pod_name_while_suspended",
        f"{SPEC}.template.metadata",
        {"finalizers": ["example.com/hold"]},
        ("spec.template.metadata.finalizers: field is immutable",),
        SUSPENDED,
    ),
    Update(
        "deadline_while_suspended",
        f"{SPEC}.activeDeadlineSeconds",
        9,
        ('spec.replicatedJobs[name="workers"].template.spec.activeDeadlineSeconds: field is immutable',),
        SUSPENDED,
    ),
    Update(
        "job_labels_while_suspended",
        "spec.replicatedJobs.0.template.metadata",
        {"labels": {"a": "b"}},
        ('spec.replicatedJobs[name="workers"].template.metadata.labels: field is immutable', "even while suspended"),
        SUSPENDED,
    ),
    Update(
        "elastic_and_another_image",
        SPEC,
        replicated_job(pods=3, template={"spec": {"containers": [{"name": "worker", "image": "worker:2"}]}})[
            "template"
        ]["spec"],
        ("containers[0].image", "restartPolicy: field is immutable while the JobSet is not suspended"),
    ),
    Update(
        "image",
        f"{POD_TEMPLATE}.spec.containers",
        [{"name": "worker", "image": "worker:2"}],
        ("containers[0].image: field is immutable", "suspend"),
    ),
    Update(
        "pod_labels",
        f"{POD_TEMPLATE}.metadata",
        {"labels": {"a": "b"}},
        ("metadata.labels: field is immutable", "set spec.suspend to true first"),
    ),
    Update("resize_alone", SPEC, replicated_job(pods=3, backoffLimit=0)["template"]["spec"], (), NO_POLICY),
    Update(
        "resize_and_deadline",
        SPEC,
        replicated_job(pods=3, backoffLimit=0, activeDeadlineSeconds=9)["template"]["spec"],
        ("template.spec.activeDeadlineSeconds: field is immutable",),
        NO_POLICY,
    ),
)
