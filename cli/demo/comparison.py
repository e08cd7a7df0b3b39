"""
Restart the demo's group in other ways, one after the other, and time each in the same way.

Every row comes from a group that ran on the demo's cluster: real workers, a real SIGKILL, real programs of ours. The
cluster imitates kubelets, scheduler and Job controller (simulator/cluster/timings.py).
"""

from __future__ import annotations

import signal
from copy import deepcopy
from dataclasses import replace
from random import Random
from typing import Final

from inplace.cli.demo.adaptation import DemoError
from inplace.cli.demo.group import DemoGroup
from inplace.cli.demo.manifest import DemoManifest, described, read_demo_manifest
from inplace.cli.demo.view import DemoView, Scene
from inplace.cli.inject.inject import inject
from inplace.common.injection.pod import InjectOptions
from inplace.common.kube.resources import JOBSETS, KubeObject
from inplace.common.wire.mode import Mode
from inplace.simulator.cluster.cluster import Cluster
from inplace.simulator.cluster.manifests import probed_as_upstreams

THIS: Final = "this restart, inplace's default"
TRAIN_S: Final = 1.0  # before the kill; the demo's first group trains for longer and has a checkpoint
GONE_S_MAX: Final = 60.0  # a Pod's grace is 30 s, and the example's workers end at once


def alternatives(example: DemoManifest) -> dict[str, DemoManifest]:
    """Return the alternatives to the example's default restart, by title: the same JobSet name, workers and size.

    A title has at most 34 characters, for the comparison's first column. A manifest without agents recreates its Pods.
    """
    return {
        "clean containers": read_demo_manifest(None, example.pods, failures=1, mode=Mode.CONTAINERS),
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
    return replace(example, documents=[jobset], jobset=jobset, agents=frozenset(), mode=Mode.PROBE)


async def compare(cluster: Cluster, example: DemoManifest, view: DemoView, seed: int) -> None:
    """Run the alternatives to the example's restart, one after the other, and give the view a row of each.

    The seed decides which worker is killed: the same one each time.

    Raises:
        DemoError: a group does not train.
    """
    for title, manifest in alternatives(example).items():
        await _delete(cluster, example)
        group = DemoGroup(cluster, manifest)
        view.scene = Scene(title, group)
        await cluster.apply(manifest.documents)
        await group.complete(-1)
        await cluster.clock.sleep(TRAIN_S)
        await group.strike(Random(seed), signal.SIGKILL)
        await group.complete(0)
        group.timeline.close()
        view.compared.append(group.record.row(title, group.timeline.current.seconds))


async def _delete(cluster: Cluster, manifest: DemoManifest) -> None:
    """Delete a JobSet, and wait until its Pods are gone.

    Raises:
        DemoError: they stay.
    """
    await cluster.client("kubectl").delete(JOBSETS, manifest.namespace, manifest.name)
    try:
        await cluster.until(
            lambda: not cluster.jobset(manifest.name, manifest.namespace) and not cluster.pods(manifest.namespace),
            timeout_s=GONE_S_MAX,
        )
    except TimeoutError as error:
        raise DemoError(f"expected the Pods of {manifest.name} to be gone within {GONE_S_MAX:g} s") from error
