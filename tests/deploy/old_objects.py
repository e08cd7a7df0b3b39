"""JobSets that were stored BEFORE the rules and the schema of templates were installed; each breaks one rule."""

from typing import Final

from tests.controller.manifests import changed, jobset, replicated_job
from tests.deploy.crd_cases import SPEC
from tests.deploy.spec_cases import claim, claims, depending, plain, rule, with_rules
from tests.deploy.spelling_cases import PODS, WORKER

OLD_OBJECTS: Final = {
    "in-place-with-a-backoff-limit": changed(jobset(), f"{SPEC}.backoffLimit", 6),
    "a-name-too-long-" + "j" * 40: plain(replicated_job("workers-of-the-set", backoffLimit=0)),
    "name.with.dots": plain(),
    "self-dependency": plain(replicated_job("a"), depending("b", "b")),
    "coordinator-of-nobody": plain(coordinator={"replicatedJob": "x"}),
    "pattern": with_rules(rule(onJobFailureMessagePatterns=["("])),
    "rule-without-name": with_rules(rule("")),
    "indexed-of-2-31": plain(replicated_job("a", pods=2**31 - 1, backoffLimit=0)),
    "claim-nobody-mounts": plain(volumeClaimPolicies=claims(claim("data"))),
    "port-without-protocol": changed(jobset(), f"{WORKER}.ports", [{"containerPort": 80}]),
    "port-twice": changed(jobset(), f"{WORKER}.ports", [{"containerPort": 80}, {"containerPort": 80, "name": "b"}]),
    "port-in-words": changed(jobset(), f"{WORKER}.ports", [{"containerPort": "80"}]),
    "variable-twice": changed(jobset(), f"{WORKER}.env", [{"name": "A", "value": "1"}, {"name": "A", "value": "2"}]),
    "grpc-probe-without-service": changed(jobset(), f"{WORKER}.livenessProbe", {"grpc": {"port": 80}}),
    "volumes-in-words": changed(jobset(), f"{PODS}.spec.volumes", "none"),
}

STARTS_NOWHERE: Final = changed(jobset(), f"{WORKER}.volumeMounts", [{"name": "a"}])
"""A JobSet without a field that Kubernetes requires of a Job: no Job of it can exist."""
