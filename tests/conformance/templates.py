"""
Spoiled Pod templates, judged by our API server, by lint and by the real one: `python -m tests.conformance.templates`.

Each template comes from a manifest of ours. One or two of its fields are replaced, removed or added, with values that
are valid, nearly valid or of another type. All three say whether they take the Job that the controller makes.
"""

from __future__ import annotations

import argparse
import asyncio
import copy
import json
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from random import Random
from typing import Any, Final

import msgspec

from inplace.cli.lint.catalogue import RULES
from inplace.cli.lint.lint import _judged, lint
from inplace.cli.lint.stored import as_stored, stored
from inplace.cli.manifests.documents import StreamError, read_stream
from inplace.common.jobset.form import check_form
from inplace.common.kube.client import KubeClient
from inplace.common.kube.clock import LoopClock
from inplace.common.kube.errors import ApiError
from inplace.common.kube.resources import JOBS, KubeObject
from inplace.common.protocol.errors import RemoteProtocolError
from inplace.controller.plan.jobs import build_job
from inplace.simulator.apiserver import ApiServer, InMemoryTransport
from inplace.simulator.apiserver.decoding import TYPES
from inplace.simulator.apiserver.pod_annotations import (
    APPARMOR,
    DELETION_COST,
    MIRROR,
    SECCOMP,
    SECCOMP_POD,
    TOLERATIONS,
)
from inplace.simulator.cluster.manifests import read_manifests
from testbed.binaries import find_binaries
from testbed.control_plane import ControlPlane
from tests.http_transport import transport_for

ROOT: Final = Path(__file__).parent.parent.parent
MANIFESTS: Final = (ROOT / "tests" / "cases" / "manifests", ROOT / "examples")
DRY: Final = {"dryRun": "All", "fieldValidation": "Strict"}
APISERVER_FLAGS: Final = ("--allow-privileged=true",)  # as in every cluster that is not a test

WORDS: Final[dict[str, str]] = {
    "annotations": "runtime/default unconfined localhost/a localhost//a 10 +1 -5 [] [{}] {} text",
    "completionMode": "Indexed NonIndexed indexed",
    "managedBy": "example.com/a kueue.x-k8s.io/multikueue a /a",
    "podReplacementPolicy": "Failed TerminatingOrFailed failed",
    "succeededIndexes": "0 0,1 0-1 1,0 7 a",
    "status": "True False Unknown true",
    "dnsPolicy": "ClusterFirst Default None ClusterFirstWithHostNet ClusterFirstWithHost default",
    "restartPolicy": "Always Never OnFailure never",
    "operator": "In NotIn Exists DoesNotExist Gt Lt Equal Exist in",
    "effect": "NoSchedule NoExecute PreferNoSchedule NoSchedul",
    "protocol": "TCP UDP SCTP tcp HTTP",
    "scheme": "HTTP HTTPS http",
    "imagePullPolicy": "Always Never IfNotPresent always",
    "pullPolicy": "Always Never IfNotPresent always",
    "terminationMessagePolicy": "File FallbackToLogsOnError file",
    "whenUnsatisfiable": "DoNotSchedule ScheduleAnyway Schedule",
    "type": "Localhost RuntimeDefault Unconfined Directory File Socket runtimeDefault",
    "procMount": "Default Unmasked default",
    "action": "Restart RestartAllContainers Kill",
    "mountPropagation": "None HostToContainer Bidirectional none",
    "recursiveReadOnly": "Disabled Enabled IfPossible yes",
    "fieldPath": "metadata.name metadata.labels metadata.annotations['a/b'] metadata.labels['<x>'] status.podIP"
    " spec.nodeName spec.host status.phase metadata.foo status.hostIPs metadata.name['a']",
    "resource": "limits.cpu requests.memory limits.hugepages-2Mi cpu limits.gpu requests.ephemeral-storage",
    "topologyKey": "kubernetes.io/hostname zone <key> a/b/c",
    "preemptionPolicy": "Never PreemptLowerPriority never",
    "fsGroupChangePolicy": "Always OnRootMismatch always",
    "supplementalGroupsPolicy": "Merge Strict merge",
    "seLinuxChangePolicy": "Recursive MountOption recursive",
    "nodeAffinityPolicy": "Honor Ignore honor",
    "nodeTaintsPolicy": "Honor Ignore honor",
    "ip": "10.0.0.1 10.0.0.300 ::1 2001:db8::1 010.0.0.1 ::ffff:1.2.3.4 localhost 1.2.3",
    "resourceName": "cpu memory gpu",
    "accessModes": "ReadWriteOnce ReadOnlyMany ReadWriteOncePod RWO",
    "volumeMode": "Block Filesystem block",
    "driver": "csi.example.com CSI.Example.com a_b",
    "mountPath": "/data /a /dev/shm data ../x",
    "path": "a/b /a ../a a/../b ..a a",
    **dict.fromkeys(("credentialBundlePath", "keyPath", "certificateChainPath"), "a/b /a ../a ..a a"),
    "keyType": "RSA3072 ED25519 RSA1024",
    "signerName": "example.com/a.b kubernetes.io/legacy a.kubernetes.io/a a/b a /a a.b/C a.b/c/d",
    "userAnnotations": "a",
    "searches": "example.com . a_b example.com. EXAMPLE ..",
    "nameservers": "8.8.8.8 ::1 dns 08.8.8.8",
    "conditionType": "example.com/ready <ready> a/b/c",
    "medium": "Memory HugePages HugePages-2Mi disk",
    "stopSignal": "SIGTERM SIGFOO",
    "name": "a b agent trainer checkpoints linux windows a.b A kernel.shm_rmid_forced net.core.somaxconn",
}
TEXTS: Final = (
    *("", "a", "abc-1", "A", "a.b", "a_b", "a/b", "a/b/c", "example.com/name", "<name>", "${NAME}", "-a", "a-", " a"),
    *("x" * 63, "x" * 64, "x" * 254, "1", "01", "..", ".", "/abs", "a/../b", "ü", "a b", "metadata.name", "10.0.0.1"),
)
KEYS: Final = (*TEXTS[:12], "nvidia.com/gpu", "cpu", "memory", "hugepages-2Mi", "storage", "ephemeral-storage", "pods")
ANNOTATIONS: Final = (MIRROR, TOLERATIONS, DELETION_COST, SECCOMP_POD, f"{SECCOMP}trainer", f"{APPARMOR}trainer")
QUANTITIES: Final = (
    *(
        "1",
        1,
        0,
        -1,
        "100m",
        "1Gi",
        "1.5",
        0.5,
        "1e3",
        "-1",
        "1gb",
        "4GB",
        "1 Gi",
        "",
        "abc",
        "1mi",
        "2Mi",
        "3Mi",
        "1E",
    ),
    *(True, "1Ki", "0.1", "1n", "+1", "1e", ".5", "5.", "10T"),
)
INTEGERS: Final = (
    0,
    1,
    2,
    3,
    10,
    30,
    80,
    100,
    101,
    255,
    256,
    511,
    512,
    600,
    3600,
    -1,
    65535,
    65536,
    2**31 - 1,
    2**31,
    2**40,
)
OTHERS: Final[tuple[Any, ...]] = ("text", 1, 1.5, True, {}, [], {"a": "b"}, ["a"], None)


STRICTER: Final[dict[str, str]] = {
    "unexpanded-variable": "the API takes any text there; lint says that nothing has filled it in",
    "Duplicate value": "the CRD names the keys of lists, as upstream's does, so the server refuses the JobSet",
}
"""Why lint reports an error where the server takes the Job: words of the finding, and the reason."""


@dataclass(frozen=True, slots=True)
class Template:
    """A template: of which manifest, what was changed, and the spec of its Job."""

    name: str
    changes: tuple[str, ...]
    spec: KubeObject


class Spoiler:
    """Change a Job's template from a seed."""

    def __init__(self, seed: int) -> None:
        self._random = Random(seed)

    def spoiled(self) -> Template:
        """Return a template with one to three changes."""
        name, spec = self._random.choice(originals())
        spec = copy.deepcopy(spec)
        changes = tuple(self._change(spec) for _ in range(self._random.choice((1, 1, 1, 2, 3))))
        return Template(name, changes, spec)

    def _change(self, spec: KubeObject) -> str:
        parts = [part for part in _parts(spec, "JobSpec", "spec") if TYPES[part[1]]]
        kinds = sorted({type_name for _, type_name, _ in parts})
        wanted = self._random.choice(
            (*kinds, "PodSpec", "PodSpec", "PodSpec", "Container", "Container", "PodTemplateSpec")
        )
        part, type_name, path = self._random.choice([one for one in parts if one[1] == wanted] or parts)
        fields = TYPES[type_name]
        there = [field for field in part if field in fields]
        chance = self._random.random()
        if chance < 0.1 and there:
            field = self._random.choice(there)
            del part[field]
            return f"{path}.{field} removed"
        if chance < 0.13:
            part["unknownField"] = "a"
            return f"{path}.unknownField added"
        field = self._random.choice(there if chance < 0.45 and there else sorted(fields))
        if chance > 0.95:
            part[field] = copy.deepcopy(self._random.choice(OTHERS))
        elif isinstance(part.get(field), list) and part[field] and self._random.random() < 0.5:
            item = self._random.choice((copy.deepcopy(part[field][0]), self._value(fields[field][1:-1], field, 0)))
            part[field].append(item)
        else:
            part[field] = self._value(fields[field], field, 0)
        return f"{path}.{field} = {json.dumps(part[field])[:150]}"

    def _value(self, type_name: str, field: str, depth: int) -> Any:
        """Return a value of a type, which its field may or may not allow."""
        choose = self._random.choice
        if type_name.startswith("["):
            return [self._value(type_name[1:-1], field, depth) for _ in range(choose((0, 1, 1, 1, 2)))]
        if type_name.startswith("{"):
            keys = (*KEYS, *ANNOTATIONS) if field == "annotations" else KEYS
            return {choose(keys): self._value(type_name[1:-1], field, depth) for _ in range(choose((0, 1, 1, 2)))}
        if type_name in TYPES:
            return self._struct(type_name, depth)
        if type_name == "string":
            known = WORDS.get(field, "").split()
            return choose(known) if known and self._random.random() < 0.8 else choose(TEXTS)
        if type_name == "IntOrString":
            return choose((*INTEGERS, "http", "a--b", "80", ""))
        return choose({"Quantity": QUANTITIES, "boolean": (True, False)}.get(type_name, INTEGERS))

    def _struct(self, type_name: str, depth: int) -> Any:
        fields = sorted(TYPES[type_name])
        if type_name == "Volume":
            fields = ["name", self._random.choice(fields)]
        elif type_name in ("ProbeHandler", "VolumeProjection", "EnvVarSource", "LifecycleHandler"):
            fields = [self._random.choice(fields)]
        share = 1 if len(fields) <= 3 else 0.6
        return {
            field: self._value(TYPES[type_name][field], field, depth + 1)
            for field in fields
            if depth < 6 and self._random.random() < share
        }


def _parts(value: Any, type_name: str, path: str) -> Iterator[tuple[dict[str, Any], str, str]]:
    """Yield every object in a value with its type and its path."""
    if type_name.startswith("[") and isinstance(value, list):
        for at, item in enumerate(value):
            yield from _parts(item, type_name[1:-1], f"{path}[{at}]")
    if type_name in TYPES and isinstance(value, dict):
        yield value, type_name, path
        for field, child in TYPES[type_name].items():
            if field in value:
                yield from _parts(value[field], child, f"{path}.{field}")


@cache
def originals() -> tuple[tuple[str, KubeObject], ...]:
    """Return the Job specs of our manifests, each with its file's name."""
    found = []
    for path in sorted(path for folder in MANIFESTS for path in folder.glob("*.yaml")):
        for document in read_manifests(path):
            if document.get("kind") != "JobSet":
                continue
            for job in (document.get("spec") or {}).get("replicatedJobs") or ():
                spec = (job.get("template") or {}).get("spec") or {}
                pod = (spec.get("template") or {}).get("spec")
                if isinstance(pod, dict):
                    found.append((path.name, spec | {"template": spec["template"]}))
    return tuple(found)


def jobset_of(template: Template) -> KubeObject:
    """Return a JobSet with the template, under the strategy that asks nothing of it."""
    return {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {"name": "spoiled", "namespace": "default"},
        "spec": {
            "failurePolicy": {"maxRestarts": 1, "restartStrategy": "Recreate"},
            "replicatedJobs": [{"name": "w", "replicas": 1, "template": {"spec": template.spec}}],
        },
    }


def job_of(template: Template) -> KubeObject:
    """Return the Job that the controller makes; the bare template where the controller cannot read it."""
    jobset = jobset_of(template)
    try:
        check_form(stored(jobset))
        parsed = as_stored(jobset)
        return build_job(parsed, parsed.replicated_jobs[0], 0)
    except (RemoteProtocolError, msgspec.ValidationError):
        return {"metadata": {"name": "spoiled", "namespace": "default"}, "spec": template.spec}


async def refusal(client: KubeClient, job: KubeObject) -> str:
    """Return why a server refuses a Job; an empty text where it takes it."""
    whole = {"apiVersion": JOBS.api_version, "kind": JOBS.kind} | job
    try:
        await client.raw("POST", JOBS.path("default", query=DRY), body=whole)
    except ApiError as error:
        return str(error)
    return ""


def lint_says(template: Template, folder: Path) -> str:
    """Return lint's errors; an empty text where it has none."""
    file = folder / "jobset.json"
    file.write_text(json.dumps(jobset_of(template)))
    try:
        reports = _judged(lint(read_stream(str(file))))
    except StreamError as error:
        return str(error)
    found = [one for report in reports for one in report.findings if RULES[one.rule].severity == "error"]
    return "; ".join(f"{one.rule} {one.path}: {one.found}" for one in found)


@dataclass(frozen=True, slots=True)
class Verdicts:
    """What each says of a template: a refusal, or an empty text."""

    template: Template
    real: str
    ours: str
    lint: str

    @property
    def is_equal(self) -> bool:
        """Say whether all three take or refuse it."""
        return bool(self.real) == bool(self.ours) == bool(self.lint)

    @property
    def reason(self) -> str:
        """Return why lint alone refuses it, "" where that is not known."""
        if self.real or self.ours:
            return ""
        return next((why for words, why in STRICTER.items() if words in self.lint), "")


async def verdicts(real: KubeClient, templates: Sequence[Template]) -> list[Verdicts]:
    """Ask all three about each template."""
    server = ApiServer(clock=LoopClock(), rng=Random(0))
    ours = KubeClient(InMemoryTransport(server), user_agent="templates", field_manager="templates")
    asked = []
    for template in templates:
        job = job_of(template)
        asked.append((template, await refusal(real, job), await refusal(ours, job)))
    with tempfile.TemporaryDirectory() as folder:
        said = await asyncio.to_thread(lambda: [lint_says(template, Path(folder)) for template, _, _ in asked])
    return [Verdicts(template, theirs, own, words) for (template, theirs, own), words in zip(asked, said, strict=True)]


async def compare(first: int, count: int) -> list[Verdicts]:
    """Start a real server, and ask all three about the templates of these seeds."""
    templates = [Spoiler(seed).spoiled() for seed in range(first, first + count)]
    async with ControlPlane(find_binaries(), apiserver_flags=APISERVER_FLAGS) as plane:
        transport = transport_for(plane.kubeconfig)
        try:
            return await verdicts(KubeClient(transport, user_agent="templates", field_manager="t"), templates)
        finally:
            await transport.close()


def main() -> int:
    """Print the differences and the figures; return 1 where more than 1 % differ."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=2000)
    parser.add_argument("--first", type=int, default=0)
    options = parser.parse_args()
    found = asyncio.run(compare(options.first, options.count))
    for at, one in enumerate(found, options.first):
        if not one.is_equal and not one.reason:
            print(f"--- seed {at}, {one.template.name}", *one.template.changes, sep="\n    ")
            print(f"  kube-apiserver: {one.real or 'takes it'}\n  ours: {one.ours or 'takes it'}")
            print(f"  lint: {one.lint or 'no error'}")
    for why, number in Counter(one.reason for one in found if one.reason).items():
        print(f"{number:,} that only lint refuses: {why}")
    equal = sum(one.is_equal for one in found)
    counts = Counter(bool(one.real) for one in found if one.is_equal)
    passed = sum(bool(one.real) and not one.lint for one in found)
    print(
        f"{len(found):,} templates: {counts[True]:,} refused by all, {counts[False]:,} taken by all, "
        f"{len(found) - equal:,} judged differently; {passed:,} that the server refuses pass lint"
    )
    return int(equal < 0.99 * len(found))


if __name__ == "__main__":
    sys.exit(main())
