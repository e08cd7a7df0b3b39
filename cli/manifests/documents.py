"""
Read a stream of manifests: several documents, JSON or YAML, from a file or standard input.

Guarantees: an unusable stream gives one sentence that says what was expected and what was seen.
"""

from __future__ import annotations

import errno
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import msgspec
import yaml

from inplace.cli.forms import METADATA, WORDS, form
from inplace.cli.lint.stored import stored
from inplace.cli.manifests.trainer import is_runtime, is_train_job, jobset_in
from inplace.cli.manifests.yaml_loader import parse, with_whole_characters
from inplace.common.jobset.form import check_form, in_words
from inplace.common.kube.bounded_read import read_bounded
from inplace.common.kube.resources import KubeObject
from inplace.common.wire import names as wire

STANDARD_INPUT: Final = "-"
STREAM_BYTES_MAX: Final = 4 * 1024 * 1024  # two of etcd's largest objects; PyYAML reads some 0.5 MB a second

# Of each of them docs/coming-from.md has a manifest, and the JobSet that does the same.
OTHER_KINDS: Final = frozenset((
    ("kubeflow.org", "PyTorchJob"), ("kubeflow.org", "MPIJob"), ("leaderworkerset.x-k8s.io", "LeaderWorkerSet"),
    ("batch", "Job"), ("batch.volcano.sh", "Job"), ("ray.io", "RayCluster"), ("ray.io", "RayJob"),
))  # fmt: skip

_NAMED: Final = {"metadata?": {**METADATA, "name?": str, "namespace?": str, "generateName?": str}}
_TEMPLATE: Final = {**_NAMED, "spec?": {}}  # of a JobSet
_OBJECT: Final = form(_NAMED)
_RULE: Final = {"apiGroups?": [str], "resources?": [str], "resourceNames?": [str], "verbs?": [str]}
_ROLE: Final = form({**_NAMED, "rules?": [_RULE]})
_BINDING: Final = form({**_NAMED, "roleRef?": {"kind?": str, "name?": str}, "subjects?": [{}]})
_RIGHTS: Final = {"Role": _ROLE, "ClusterRole": _ROLE, "RoleBinding": _BINDING, "ClusterRoleBinding": _BINDING}
_TRAINER: Final = {"command?": [str], "args?": [str], "env?": [{"name?": str}], "resourcesPerNode?": {}}
_TRAIN_JOB: Final = form(
    {
        **_NAMED,
        "spec": {
            "runtimeRef?": {"kind?": str, "name?": str},
            "trainer?": _TRAINER,
            "annotations?": WORDS,
            "runtimePatches?": [{"trainingRuntimeSpec?": {"template?": _TEMPLATE}}],
        },
    }
)
_RUNTIME: Final = form({**_NAMED, "spec": {"template": _TEMPLATE, "mlPolicy?": {"numNodes?": int, "mpi?": {}}}})


class StreamError(Exception):
    """The stream cannot be used; the message says what was expected and what was seen."""


@dataclass(frozen=True, slots=True)
class Stream:
    """The text of one file, and the objects in it.

    Args:
        source: the file's name for messages.
        text: with line feeds at its lines' ends, which YAML does not tell from others.
        documents: in order; None for an empty document.
        newline: what most lines of the file end with.
    """

    source: str
    text: str
    documents: tuple[Any, ...]
    newline: str = "\n"

    def objects(self) -> Iterator[KubeObject]:
        """Yield every object; those of a List one by one."""
        for document in self.documents:
            yield from objects_of(document)

    def jobsets(self) -> Iterator[KubeObject]:
        """Yield the JobSets."""
        return (document for document in self.objects() if is_jobset(document))


def read_stream(file: str) -> Stream:
    """Read a file, or standard input for "-".

    A runtime or a TrainJob of Kubeflow Trainer, of which Trainer makes a JobSet, will do as well as a JobSet.

    Raises:
        StreamError: the stream is at fault.
    """
    source = "standard input" if file == STANDARD_INPUT else file
    whole = _read(file, source)
    text = with_whole_characters(whole.replace("\r\n", "\n"))
    newline = "\r\n" if 2 * (len(whole) - len(text)) > whole.count("\n") else "\n"
    try:
        documents = parse(text)
    except yaml.YAMLError as error:
        raise StreamError(f"{source}: expected YAML or JSON, saw {error}") from error
    stream = Stream(source, text, documents, newline)
    if not any(document is not None for document in documents):
        raise StreamError(f"{source}: expected a manifest with a JobSet, saw nothing but blanks and comments")
    for document in stream.objects():
        if not isinstance(document, dict) or not all(_is_text(document.get(key)) for key in ("apiVersion", "kind")):
            raise StreamError(f"{source}: expected objects with apiVersion and kind, saw {document!r:.80}")
        try:
            _check_form(document)
        except msgspec.ValidationError as error:
            raise StreamError(f"{source}: {document['kind']}: {in_words(error)}") from error
    if not any(is_jobset(one) or is_runtime(one) or is_train_job(one) for one in stream.objects()):
        kinds = ", ".join(sorted({f"{document['kind']} ({document['apiVersion']})" for document in stream.objects()}))
        page = (
            "; docs/coming-from.md has a JobSet for it" if OTHER_KINDS & set(map(_group_kind, stream.objects())) else ""
        )
        raise StreamError(f"{source}: expected a {wire.KIND} ({wire.API_VERSION}), saw {kinds:.200}{page}")
    return stream


def _check_form(obj: KubeObject) -> None:
    """Check which parts of an object are mappings, lists, texts and numbers; its kind and its version are texts.

    Raises:
        msgspec.ValidationError: it has another form than its kind.
    """
    if is_runtime(obj):
        msgspec.convert(obj, _RUNTIME)
        _check_jobset(jobset_in(obj), ".spec.template")
    elif is_train_job(obj):
        msgspec.convert(obj, _TRAIN_JOB)
        for place, patch in enumerate(obj["spec"].get("runtimePatches") or ()):
            template = (patch.get("trainingRuntimeSpec") or {}).get("template") or {}
            _check_jobset(template, f".spec.runtimePatches[{place}].trainingRuntimeSpec.template")
    else:
        msgspec.convert(obj, _RIGHTS.get(obj["kind"], _OBJECT))
        if is_jobset(obj):
            _check_jobset(obj)


def _check_jobset(jobset: KubeObject, where: str = "") -> None:
    """Check a JobSet, or a part of a thing that becomes one; `where` is the path to it."""
    try:
        check_form(stored(jobset))
    except msgspec.ValidationError as error:
        raise msgspec.ValidationError(str(error).replace(" - at `$", f" - at `${where}", 1)) from error


def objects_of(document: Any) -> Iterator[Any]:
    """Yield a document, or the items of a List or a JobSetList; nothing for an empty one."""
    is_list = isinstance(document, dict) and str(document.get("kind")).endswith("List")
    if is_list and isinstance(document.get("items"), list):
        yield from document["items"]
    elif document is not None:
        yield document


def is_jobset(document: KubeObject) -> bool:
    """Say whether an object is a JobSet of the version that we know."""
    return (document["kind"], document["apiVersion"]) == (wire.KIND, wire.API_VERSION)


def _group_kind(document: KubeObject) -> tuple[str, str]:
    return document["apiVersion"].partition("/")[0], document["kind"]


def name_of(document: KubeObject) -> str:
    """Return kind and name for messages."""
    metadata = document.get("metadata") or {}
    name = metadata.get("name") or f"{metadata.get('generateName') or '?'}..."
    return " ".join((document["kind"], "/".join(part for part in (metadata.get("namespace"), name) if part)))


def _read(file: str, source: str) -> str:
    try:
        raw = read_bounded("/dev/stdin" if file == STANDARD_INPUT else file, STREAM_BYTES_MAX)
    except OSError as error:
        if error.errno == errno.EFBIG:
            raise StreamError(f"{source}: expected at most {STREAM_BYTES_MAX:,} bytes, saw more") from error
        raise StreamError(f"{source}: expected a readable file, saw: {error.strerror}") from error
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise StreamError(f"{source}: expected YAML in UTF-8, saw {error}") from error


def _is_text(value: object) -> bool:
    return isinstance(value, str) and value != ""
