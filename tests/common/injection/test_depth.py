"""The depth of a Pod that says none: what kubelet does before each try, and at each start of a container, is done."""

from __future__ import annotations

import pytest

from inplace.common.kube.resources import KubeObject
from inplace.common.wire import names as wire
from tests.cli.injecting import PLAIN, findings_of, injected, jobset_of, plain, pod_spec_of, with_env
from tests.common.injection.test_pod import silent

UNLOCK = "initContainers: [{name: unlock, image: 'i:1', command: [rm, -f, /work/lock]}]"
SIDECAR = "initContainers: [{name: proxy, image: 'i:1', command: [proxy], restartPolicy: Always}]"
LIVENESS = "livenessProbe: {tcpSocket: {port: 9000}}"
STARTUP = "startupProbe: {exec: {command: [cat, /ready]}}"
HOOK = "lifecycle: {postStart: {exec: {command: [cat, /ready]}}}"
READINESS = "readinessProbe: {tcpSocket: {port: 9000}}"
PRE_STOP = "lifecycle: {preStop: {exec: {command: [cat, /ready]}}}"
FENCE = "annotations: {inplace.dev/fence-after: '60'}"
PROCESS = "annotations: {inplace.dev/restart: process}"
VOLUMES = "            volumes:\n"
CONTAINERS = "annotations: {inplace.dev/restart: containers}"
BUCKET = "- {name: bucket, csi: {driver: gcsfuse.csi.storage.gke.io}}"


def depth_of(text: str) -> str:
    """Return the depth that a Pod's template says after injection; "" for none."""
    template = jobset_of(text)["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]
    return str(((template.get("metadata") or {}).get("annotations") or {}).get(wire.RESTART_DEPTH, ""))


def is_held(text: str) -> bool:
    """Say whether the agent's startup probe holds the worker's container back."""
    agent: KubeObject = pod_spec_of(text)["initContainers"][-1]
    assert ("startupProbe" in agent) != ("readinessProbe" in agent)
    return "startupProbe" in agent


@pytest.mark.parametrize(
    ("text", "depth", "held"),
    [
        (PLAIN, "", False),
        (plain(pod=UNLOCK), "containers", False),
        (plain(pod=SIDECAR), "", False),
        (plain(worker=LIVENESS), "containers", True),
        (plain(worker=STARTUP), "containers", True),
        (plain(worker=HOOK), "containers", True),
        (plain(worker=READINESS), "", False),
        (plain(worker=PRE_STOP), "", False),
        (plain(pod=UNLOCK, worker=LIVENESS), "containers", True),
        (plain(metadata=PROCESS, pod=UNLOCK, worker=LIVENESS), "", False),
        (plain(metadata=CONTAINERS, worker=LIVENESS), "", True),
        (plain(metadata=FENCE, pod=UNLOCK, worker=LIVENESS), "", False),
        (plain(pod=UNLOCK).replace(VOLUMES, f"{VOLUMES}            {BUCKET}\n"), "", False),
    ],
    ids=[
        "plain", "init", "sidecar", "liveness", "startup", "hook", "readiness", "pre-stop", "both", "author's process",
        "author's containers", "lease", "bucket",
    ],
)  # fmt: skip
def test_a_pod_gets_new_containers_where_kubernetes_repeats_something(text: str, depth: str, held: bool) -> None:
    """Init containers run before each try, and a probe or hook of the worker only when its barrier has lifted.

    The author's word wins; so does what new containers would break: a lease, the mount of a bucket.
    """
    made = injected(text)
    assert depth_of(made) == depth
    assert is_held(made) is held


def test_a_check_before_joining_keeps_its_guard_before_the_barrier() -> None:
    """The check runs in the worker's container, so that container starts BEFORE the lift; lint says what that means."""
    made = injected(with_env(plain(worker=LIVENESS), BEFORE_ANNOUNCE="true"))
    assert (depth_of(made), is_held(made)) == ("containers", False)
    assert "worker-probe" in rules_of(made)


def test_doing_it_twice_changes_nothing() -> None:
    """The depth stands on the Pod template by then, and the barrier is the agent's startup probe already."""
    for text in (plain(pod=UNLOCK, worker=LIVENESS), plain(worker=HOOK), plain(pod=UNLOCK), silent(worker=LIVENESS)):
        assert injected(injected(text)) == injected(text)


def test_an_images_entrypoint_keeps_its_guard() -> None:
    """A depth that we choose takes nothing away: the watchdog and the time to save need the guard."""
    pod = pod_spec_of(injected(silent(worker=LIVENESS)))
    assert "GUARDS_AWAITED" in {one["name"] for one in pod["initContainers"][-1]["env"]}
    assert "ENTRYPOINT_GUARD" in {one["name"] for one in pod["containers"][0]["env"]}


def test_a_helpers_probe_is_not_ours() -> None:
    """Kubelet probes a helper as it does without us: it runs while the worker waits."""
    helper = "- {name: proxy, image: 'i:1', command: [proxy], livenessProbe: {tcpSocket: {port: 1}}}"
    text = PLAIN.replace("            containers:\n", f"            containers:\n            {helper}\n", 1)
    made = injected(text, workers=("worker",))
    assert (depth_of(made), is_held(made)) == ("", False)


def rules_of(text: str) -> set[str]:
    """Return the rules of which lint finds something."""
    return {one.rule for one in findings_of(jobset_of(text))}
