"""Read the manifest of the demo: examples/train.yaml, or a user's manifest with exactly one JobSet."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from inplace import examples
from inplace.cli.manifests.agent_pieces import DEPTH
from inplace.cli.manifests.documents import StreamError, read_stream
from inplace.common import wire
from inplace.common.guard_command import is_guarded
from inplace.common.kube.resources import KubeObject
from inplace.simulator.cluster.manifests import with_pods

EXAMPLE = Path(examples.__file__).parent / "train.yaml"
EXAMPLES = {
    "guarded": EXAMPLE.with_name("train-guarded.yaml"),
    "process": EXAMPLE.with_name("train-guarded.yaml"),
    "supervisor": EXAMPLE.with_name("train-supervisor.yaml"),
}
PODS_DEFAULT = 8
STALL_AFTER = "STALL_AFTER_S"  # the agent's
PODS_MAX = 10_000  # of one demo: its cluster has a node for eight of them


class ManifestError(Exception):
    """The manifest cannot be used; the message says what was expected and what was seen."""


@dataclass(frozen=True, slots=True)
class DemoManifest:
    """What to apply, and what the demo needs to know of it.

    Args:
        documents: everything, in the order of the file.
        namespace: of the JobSet.
        name: of the JobSet.
        pods: how many Pods its slots make.
        worker: name of the worker's container: the first regular one of the first replicatedJob.
        agent: name of the agent's container: its first sidecar, or the worker's in supervisor mode.
        mode: sidecar, guarded (a sidecar, and a guard around the worker), process (the same with depth `process`) or
            supervisor.
    """

    documents: list[KubeObject]
    namespace: str
    name: str
    pods: int
    worker: str
    agent: str
    mode: str


def read_demo_manifest(
    file: Path | None, pods: int | None, failures: int, mode: str | None, stall_after_s: float | None = None
) -> DemoManifest:
    """Return the manifest of `file`, or the example of `mode`; `pods` resizes it, None leaves a user's file as it is.

    The example allows as many restarts as there are failures to come; a user's file says itself how many it allows.
    With `stall_after_s` the agents restart the group when a rank is silent for so long, unless the file has a limit.

    Raises:
        ManifestError: the file is at fault.
    """
    path = file or EXAMPLES.get(mode or "", EXAMPLE)
    documents = _read(path)
    jobset = _only_jobset(documents, path)
    if file is None:
        policy = jobset["spec"]["failurePolicy"]
        policy["maxRestarts"] = max(policy["maxRestarts"], failures)
        pods = pods or PODS_DEFAULT
        if mode == wire.PROCESS:
            jobset["metadata"]["annotations"] = {wire.RESTART_DEPTH: wire.PROCESS}
            jobset["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]["initContainers"][0][
                "env"
            ].append(dict(DEPTH))
    if pods is not None:
        try:
            documents = with_pods(documents, pods)
        except (ValueError, KeyError, TypeError) as error:
            raise ManifestError(f"--pods {pods}: {error}") from error
        jobset = _only_jobset(documents, path)
    manifest = _described(documents, jobset, path)
    if stall_after_s is not None and manifest.mode != "sidecar":
        _set_limit(jobset, manifest.agent, stall_after_s)
    if mode is not None and mode != manifest.mode:
        raise ManifestError(f"{path}: expected a manifest for --mode {mode}, saw one for {manifest.mode} mode")
    return manifest


def _read(file: Path) -> list[KubeObject]:
    try:
        documents = list(read_stream(str(file)).objects())
    except StreamError as error:
        raise ManifestError(str(error)) from error
    for document in documents:
        if not isinstance(document.get("metadata"), dict):
            raise ManifestError(f"{file}: expected objects with apiVersion, kind and metadata, saw {document!r:.80}")
    return documents


def _only_jobset(documents: list[KubeObject], file: Path) -> KubeObject:
    jobsets = [document for document in documents if document["kind"] == wire.KIND]
    if len(jobsets) != 1:
        kinds = ", ".join(str(document["kind"]) for document in documents)
        raise ManifestError(f"{file}: expected exactly one JobSet, saw {len(jobsets)} (kinds: {kinds})")
    return jobsets[0]


def _set_limit(jobset: KubeObject, agent: str, stall_after_s: float) -> None:
    """Give the agents' containers the variable of the limit."""
    for job in jobset["spec"]["replicatedJobs"]:
        template = job["template"]["spec"]["template"]["spec"]
        for container in (*(template.get("initContainers") or ()), *template["containers"]):
            env = container.setdefault("env", [])
            if container["name"] == agent and all(variable.get("name") != STALL_AFTER for variable in env):
                env.append({"name": STALL_AFTER, "value": f"{stall_after_s:g}"})


def _described(documents: list[KubeObject], jobset: KubeObject, file: Path) -> DemoManifest:
    """Find in the JobSet what the demo needs; the API server judges the rest."""
    try:
        replicated = jobset["spec"]["replicatedJobs"]
        pods = sum(int(job.get("replicas", 1)) * int(job["template"]["spec"]["parallelism"]) for job in replicated)
        template = replicated[0]["template"]["spec"]["template"]["spec"]
        worker = template["containers"][0]["name"]
        is_supervised = template["containers"][0].get("command", [])[:2] == ["inplace-agent", "run"]
        sidecars = [c for c in template.get("initContainers") or () if c.get("restartPolicy") == "Always"]
        agent = worker if is_supervised else sidecars[0]["name"]
        name, namespace = jobset["metadata"]["name"], jobset["metadata"].get("namespace", "default")
    except (KeyError, TypeError, ValueError, IndexError) as error:
        raise ManifestError(
            f"{file}: expected spec.replicatedJobs[] with a name and a template with spec.parallelism, a container and "
            "the agent as a sidecar (an init container with restartPolicy: Always) or as its main process "
            "(command: [inplace-agent, run, --, ...]), saw "
            f"{type(error).__name__}: {error}"
        ) from error
    policy = jobset["spec"].get("failurePolicy") or {}
    if policy.get("restartStrategy") != wire.IN_PLACE_RESTART:
        raise ManifestError(
            f"{file}: expected spec.failurePolicy.restartStrategy: {wire.IN_PLACE_RESTART} (this is what the demo "
            f"shows), saw {policy.get('restartStrategy')!r}"
        )
    if not 1 <= pods <= PODS_MAX:
        raise ManifestError(f"{file}: expected 1 to {PODS_MAX:,} Pods, saw replicas x parallelism = {pods:,}")
    is_below_guard = is_guarded(template["containers"][0].get("command") or ())
    mode = "supervisor" if is_supervised else "guarded" if is_below_guard else "sidecar"
    if mode == "guarded" and DEPTH in (sidecars[0].get("env") or ()):
        mode = "process"
    return DemoManifest(documents, namespace, name, pods, worker, agent, mode)
