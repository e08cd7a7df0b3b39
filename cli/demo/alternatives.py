"""The demo's example as three other manifests: clean containers, upstream's shape, and Pods that are recreated."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import replace
from typing import Final

from inplace.cli.demo.manifest import DemoManifest, described, read_demo_manifest
from inplace.cli.inject.jobset import inject
from inplace.common.kube.resources import KubeObject
from inplace.controller.injection.pod import InjectOptions
from inplace.simulator.cluster.manifests import probed_as_upstreams

THIS: Final = "this restart, inplace's default"


def alternatives(example: DemoManifest) -> dict[str, DemoManifest]:
    """Return the alternatives to the example's default restart, by title: the same JobSet name, workers and size.

    A title has at most 34 characters, for the comparison's first column. A manifest without agents recreates its Pods.
    """
    return {
        "clean containers": read_demo_manifest(None, example.pods, failures=1, mode="guarded"),
        "upstream's shape (probe, no guard)": _as_upstreams(example),
        "new Pods (Recreate)": _recreated(example),
    }


def _as_upstreams(example: DemoManifest) -> DemoManifest:
    """Hold the workers back as upstream's manifest does; the agent is ours, and so is the controller."""
    (held,), objects = inject([example.jobset], InjectOptions(barrier="probe"))
    jobset = probed_as_upstreams(held)
    return described([*objects, jobset], jobset, jobset)


def _recreated(example: DemoManifest) -> DemoManifest:
    """Have no agent: a Pod that fails fails its Job, and the controller makes all Jobs anew."""
    jobset: KubeObject = deepcopy(example.jobset)
    jobset["spec"]["failurePolicy"]["restartStrategy"] = "Recreate"
    for replicated in jobset["spec"]["replicatedJobs"]:
        job = replicated["template"]["spec"]
        job["backoffLimit"] = 0
        job["template"]["spec"]["restartPolicy"] = "Never"
    return replace(example, documents=[jobset], jobset=jobset, agents=frozenset(), mode="sidecar")
