"""Read the demo's manifest, examples/plain.yaml or a user's with exactly one JobSet, and decide its nodes."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from inplace import examples
from inplace.cli.demo.adaptation import DemoError, adapted, initializers, with_agent, with_one_guard
from inplace.cli.lint.admission import UNKNOWN, judge
from inplace.cli.lint.subjects import subjects
from inplace.cli.manifests.documents import StreamError, name_of, read_stream
from inplace.cli.manifests.trainer import is_runtime, is_train_job
from inplace.common.agent_command import is_guarded
from inplace.common.injection.pod_roles import Container, Member, members
from inplace.common.jobset.settings import FAILURES, MEMBERS, RESTART, STALL
from inplace.common.kube.resources import KubeObject
from inplace.common.wire import names as wire
from inplace.common.wire.mode import Mode
from inplace.simulator.cluster.manifests import with_pods
from inplace.simulator.cluster.nodes import ROOM, NodeShape
from inplace.simulator.cluster.scheduler import number_of, requests_of

EXAMPLE = Path(examples.__file__).parent / "plain.yaml"
SUPERVISED = EXAMPLE.with_name("train-supervisor.yaml")
# Of what `kubectl get -o yaml` prints: on a cluster it is there already, with its owner and who takes its finalizers.
_OF_LIVING = ("resourceVersion", "managedFields", "ownerReferences", "finalizers")
PODS_DEFAULT = 8
PODS_MAX = 10_000  # of one demo: its cluster has a node for eight of them


@dataclass(frozen=True, slots=True)
class DemoManifest:
    """What to apply, and what the demo needs to know of it.

    Args:
        documents: everything, in the order of the file.
        jobset: the one among them.
        pods: how many Pods restart together, once all are there.
        spares: how many of them train only in the place of another.
        workers: the worker's container of each replicatedJob that restarts in place.
        agents: the names of the agents' containers; in supervisor mode the workers'.
        mode: how the workers are run.
        notes: what the demo changed, a sentence each.
        nodes: on which the Pods fit.
    """

    documents: list[KubeObject]
    jobset: KubeObject
    pods: int
    workers: Mapping[str, str]
    agents: frozenset[str]
    mode: Mode
    notes: Sequence[str]
    nodes: list[NodeShape]
    spares: int = 0

    @property
    def trainers(self) -> int:
        """Return how many Pods train."""
        return self.pods - self.spares

    @property
    def name(self) -> str:
        """Return the JobSet's name."""
        return str(self.jobset["metadata"]["name"])

    @property
    def worker(self) -> str:
        """Return the name of the first replicatedJob's worker."""
        return next(iter(self.workers.values()))

    @property
    def namespace(self) -> str:
        """Return the JobSet's namespace."""
        return str(self.jobset["metadata"].get("namespace") or "default")


def read_demo_manifest(
    file: Path | None,
    pods: int | None,
    failures: int,
    mode: Mode | None,
    stall_after_s: float | None = None,
    *,
    models: bool = False,
    name: str | None = None,
    spares: int = 0,
) -> DemoManifest:
    """Return the manifest of `file`, or the example of `mode`; `pods` resizes it, None leaves a user's file as it is.

    The example allows as many restarts as there are failures to come; a user's file says itself how many it allows.
    With `stall_after_s` the agents restart the group when a rank is silent for so long, unless the file has a limit.
    With `models` the containers are timed models. The example gets so many `spares` beside its Pods. `name` chooses
    one of several JobSets; the others are left out.

    Raises:
        DemoError: the file is at fault.
    """
    if spares and file is not None:
        raise DemoError(f"--spares: expected the demo's own example, saw --file; write {wire.MEMBERS} in the manifest")
    path = file or (SUPERVISED if mode is Mode.SUPERVISOR else EXAMPLE)
    documents, made = _read(path)
    if name is not None:
        documents = [one for one in documents if one["kind"] != wire.KIND or one["metadata"].get("name") == name]
    jobset = _only_jobset(documents, path, name)
    if file is None:
        policy = jobset["spec"]["failurePolicy"]
        policy["maxRestarts"] = max(policy["maxRestarts"], failures)
        pods = pods or PODS_DEFAULT
        if mode is Mode.CONTAINERS:
            jobset["metadata"]["annotations"] = {wire.RESTART: wire.DEPTH_CONTAINERS}
        if spares:
            given = jobset["metadata"].get("annotations") or {}
            jobset["metadata"]["annotations"] = given | {wire.MEMBERS: f"max={pods}"}
            pods += spares
    if pods is not None:
        try:
            documents = with_pods(documents, pods)
        except (ValueError, KeyError, TypeError) as error:
            raise DemoError(f"--pods {pods}: {error}") from error
        jobset = _only_jobset(documents, path, name)
    _fill(jobset, path)
    try:
        fitting, changes = adapted(jobset, models=models, failures=failures)
        notes = made + changes
        if models:
            fitting, more = with_one_guard(fitting)
            notes += more
        shown, more = with_agent(fitting)
    except DemoError as error:
        raise DemoError(f"{path}: {error}") from error
    documents[next(place for place, document in enumerate(documents) if document is jobset)] = fitting
    manifest = described(documents, fitting, shown, [*notes, *more], path)
    # The demo kills faster than a cluster fails: no restart waits or renews containers.
    given = fitting["metadata"].get("annotations") or {}
    usual = FAILURES.with_part(given, "backoff", 0) | RESTART.with_part(given, "clean-after", 0)
    if stall_after_s is not None and manifest.mode.is_guarded:
        usual |= STALL.with_part(given, "after", f"{stall_after_s:g}")
    for key in _OF_LIVING:
        fitting["metadata"].pop(key, None)
    fitting["metadata"]["annotations"] = given | usual
    if mode is not None and mode != manifest.mode:
        raise DemoError(f"{path}: expected a manifest for --mode {mode}, saw one for {manifest.mode} mode")
    return manifest


def check_accepted(manifest: DemoManifest, file: Path) -> None:
    """Refuse what the API server refuses of the JobSet, or of its Jobs, of which only Events would say it.

    Raises:
        DemoError: it refuses something.
    """
    jobset, _ = with_agent(deepcopy(manifest.jobset))
    found = [one for one in judge([jobset])[0] if one.found != UNKNOWN]  # the demo's own client is not strict
    if found:
        why = found[0].found.partition(" (e.g. ")[0]
        more = f"; `inplace lint -f {file}` shows {len(found) - 1} more" if len(found) > 1 else ""
        raise DemoError(f"{file}: the API server refuses it: {found[0].path}: {why}{more}")


def _read(file: Path) -> tuple[list[KubeObject], list[str]]:
    """Return the objects, those of Trainer as the JobSets that it makes of them, and a note for each of these."""
    try:
        documents = list(read_stream(str(file)).objects())
    except StreamError as error:
        raise DemoError(str(error)) from error
    for document in documents:
        if document.get("kind") == wire.KIND and not isinstance(document.get("metadata"), dict):
            raise DemoError(f"{file}: expected objects with apiVersion, kind and metadata, saw {document!r:.80}")
    read, notes = [one for one in documents if not is_runtime(one) and not is_train_job(one)], []
    for subject in subjects(documents):
        if any(subject.jobset is one for one in documents):
            continue
        if subject.findings and not (subject.jobset.get("spec") or {}).get("replicatedJobs"):
            raise DemoError(f"{file}: {subject.name}: {subject.findings[0]}")
        read.append(subject.jobset)
        notes.append(f"{subject.name}: the demo runs what Trainer makes of it")
    return read, notes


def _only_jobset(documents: list[KubeObject], file: Path, name: str | None) -> KubeObject:
    jobsets = [document for document in documents if document["kind"] == wire.KIND]
    if len(jobsets) != 1:
        kinds = ", ".join(name_of(document) for document in documents)
        choose = "; choose one with --jobset NAME" if jobsets else ""
        which = "exactly one JobSet" if name is None else f"one JobSet named {name}"
        raise DemoError(f"{file}: expected {which}, saw {len(jobsets)} ({kinds}){choose}")
    return jobsets[0]


def _fill(jobset: KubeObject, file: Path) -> None:
    """Set the numbers that the API server would set, and refuse what it would refuse with words of its schema.

    `read_stream` has looked which parts are lists and mappings.
    """
    replicated = (jobset.get("spec") or {}).get("replicatedJobs")
    if not replicated:
        raise DemoError(f"{file}: expected spec.replicatedJobs with at least one entry, saw {replicated!r:.80}")
    for place, job in enumerate(replicated):
        path = f"{file}: spec.replicatedJobs[{place}]"
        spec = (job.get("template") or {}).get("spec") or {}
        containers = ((spec.get("template") or {}).get("spec") or {}).get("containers")
        if not containers:
            raise DemoError(f"{path}: expected template.spec.template.spec.containers, saw {containers!r:.80}")
        for holder, field in ((job, "replicas"), (spec, "parallelism")):
            if holder.get(field) is None:
                holder[field] = 1
            if type(holder[field]) is not int:
                raise DemoError(f"{path}: expected a whole number for {field}, saw {holder[field]!r:.80}")


def described(
    documents: list[KubeObject],
    applied: KubeObject,
    jobset: KubeObject,
    notes: Sequence[str] = (),
    file: Path = EXAMPLE,
) -> DemoManifest:
    """Find what the demo needs in the JobSet with its agent; the API server judges the rest."""
    if not jobset["metadata"].get("name"):
        raise DemoError(f"{file}: expected metadata.name or metadata.generateName, saw neither")
    everyone = sum(member.pods for member in members(jobset))
    group = [member for member in members(jobset) if not member.has_opted_out]
    first = initializers(jobset)
    pods = sum(member.pods for member in group if member.name not in first)
    if not 1 <= pods <= everyone <= PODS_MAX:
        raise DemoError(
            f"{file}: expected 1 to {PODS_MAX:,} Pods that restart in place, saw replicas x parallelism = {pods:,}"
        )
    leading = next((member for member in group if member.agent and member.name not in first), None)
    if leading is None:
        raise DemoError(f"{file}: expected an agent in the Pods that restart in place, saw none")
    try:
        nodes = node_shapes(jobset)
    except (ValueError, TypeError, KeyError) as error:
        raise DemoError(f"{file}: expected quantities as Kubernetes writes them, saw {error}") from error
    agents = frozenset(member.agent.name for member in group if member.agent)
    workers = {member.name: _worker(member).name for member in group}
    spares = sum(max(0, member.pods - most) for member in group if (most := _most(applied, member)))
    return DemoManifest(documents, applied, pods, workers, agents, _mode(leading), notes, nodes, spares)


def _most(jobset: KubeObject, member: Member) -> int:
    """Return how many Pods of a replicatedJob train at most; 0 for all."""
    template = (member.template.get("metadata") or {}).get("annotations") or {}
    annotations = template if wire.MEMBERS in template else jobset["metadata"].get("annotations") or {}
    each = member.job_spec.get("parallelism", 1) if member.raw.get("replicas", 1) > 1 else 1  # or the units are Pods
    return int(MEMBERS.read_or_default(annotations).get("max", 0)) * int(each)


def _worker(member: Member) -> Container:
    """Return the container that trains: the supervisor's, a guarded one, or the first that is no helper."""
    guarded = (one for one in member.workers if is_guarded(one.words))
    plain = (one for one in member.workers if one not in member.helpers)
    return member.supervisor or next(guarded, None) or next(plain, None) or member.containers[0]


def _mode(member: Member) -> Mode:
    if member.supervisor is not None:
        return Mode.SUPERVISOR
    if not is_guarded(_worker(member).words):
        return Mode.PROBE
    agent = member.sidecar_agent
    is_deep = agent is not None and agent.restart_depth == wire.DEPTH_PROCESS
    return Mode.PROCESS if is_deep else Mode.CONTAINERS


PODS_PER_NODE: Final = 8  # as on an accelerator host
_HOSTNAME: Final = "kubernetes.io/hostname"  # every node has its own
_OF_KUBERNETES: Final = "node.kubernetes.io/"  # taints that Kubernetes sets while something is wrong with a node


def node_shapes(jobset: KubeObject) -> list[NodeShape]:
    """Return the nodes on which all Pods of a JobSet fit, and one to spare for each replicatedJob.

    Raises:
        ValueError: a quantity cannot be read.
    """
    return [shape for member in members(jobset) if member.pods for shape in _of_member(jobset, member)]


def _of_member(jobset: KubeObject, member: Member) -> Iterator[NodeShape]:
    jobs, pods = int(member.raw["replicas"]), int(member.job_spec["parallelism"])
    topology = _exclusive_topology(jobset, member)
    if topology is None:
        yield from [_shape(member, {}, PODS_PER_NODE)] * (-(-jobs * pods // PODS_PER_NODE) + 1)
        return
    is_host = topology == _HOSTNAME
    for job in range(jobs):
        meta = jobset["metadata"]
        name = f"{meta['name']}-{member.name}-{job}"
        labels = {wire.NAMESPACED_JOB: f"{meta.get('namespace', 'default')}_{name}"[:63]}
        labels |= {} if is_host else {topology: f"domain-{job}"}
        room = max(pods, PODS_PER_NODE) if is_host else PODS_PER_NODE
        yield from [_shape(member, labels, room)] * -(-pods // room)
    yield _shape(member, {} if is_host else {topology: "spare"}, max(pods, PODS_PER_NODE))


def _exclusive_topology(jobset: KubeObject, member: Member) -> str | None:
    """Return the node label whose values the Jobs do not share."""
    for meta in (member.template.get("metadata") or {}, jobset["metadata"]):
        if key := (meta.get("annotations") or {}).get(wire.EXCLUSIVE_TOPOLOGY):
            return str(key)
    return None


def _shape(member: Member, labels: Mapping[str, str], pods: int) -> NodeShape:
    spec = member.pod_spec
    asked = {key: str(value) for key, value in (spec.get("nodeSelector") or {}).items() if key != _HOSTNAME}
    requests = requests_of({"spec": spec})
    resources = {
        name: str(math.ceil(max(amount * pods, number_of(ROOM.get(name, 0)))))
        for name, amount in requests.items()
        if name != "pods"
    }
    return NodeShape(asked | dict(labels), tuple(_taints(spec)), resources, pods)


def _taints(spec: Mapping[str, Any]) -> Iterator[KubeObject]:
    """Yield the taints that the Pods name, so that nobody else's Pods take their nodes."""
    for toleration in spec.get("tolerations") or ():
        key = toleration.get("key") or ""
        if key and not key.startswith(_OF_KUBERNETES) and toleration.get("effect") in (None, "", "NoSchedule"):
            yield {"key": key, "value": str(toleration.get("value") or ""), "effect": "NoSchedule"}
