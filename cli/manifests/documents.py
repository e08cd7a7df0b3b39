"""
Read a stream of manifests: several documents, JSON or YAML, from a file or standard input.

Guarantees: an unusable stream gives one sentence that says what was expected and what was seen.
"""

from __future__ import annotations

import errno
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import yaml

from inplace.cli.manifests.trainer import is_runtime, is_train_job, jobset_in
from inplace.cli.manifests.yaml_loader import parse, with_whole_characters
from inplace.common.kube.bounded_read import read_bounded
from inplace.common.kube.resources import KubeObject
from inplace.common.wire import names as wire

STANDARD_INPUT: Final = "-"
STREAM_BYTES_MAX: Final = 4 * 1024 * 1024  # two of etcd's largest objects; PyYAML reads some 0.5 MB a second


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


def read_stream(file: str, *, of_trainer: bool = False) -> Stream:
    """Read a file, or standard input for "-".

    Args:
        file: its path, or "-".
        of_trainer: a runtime or a TrainJob of Kubeflow Trainer, of which it makes a JobSet, will do as well.

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
        if not isinstance(document, dict) or not all(document.get(key) for key in ("apiVersion", "kind")):
            raise StreamError(f"{source}: expected objects with apiVersion and kind, saw {document!r:.80}")
    held = [jobset_in(document) for document in stream.objects() if of_trainer and is_runtime(document)]
    train_jobs = [document for document in stream.objects() if of_trainer and is_train_job(document)]
    if not any(True for _ in stream.jobsets()) and not held and not train_jobs:
        kinds = ", ".join(sorted({f"{document['kind']} ({document['apiVersion']})" for document in stream.objects()}))
        raise StreamError(f"{source}: expected a {wire.KIND} ({wire.API_VERSION}), saw {kinds:.200}")
    for jobset in (*stream.jobsets(), *held):
        name = name_of(jobset) if isinstance(jobset.get("metadata") or {}, dict) else "JobSet"
        _check_form(jobset, _FORM, "", f"{source}: {name}")
    for train_job in train_jobs:
        _check_form(train_job, _TRAIN_JOB, "", f"{source}: TrainJob")
    return stream


def objects_of(document: Any) -> Iterator[Any]:
    """Yield a document, or the items of a List; nothing for an empty one."""
    if isinstance(document, dict) and document.get("kind") == "List" and isinstance(document.get("items"), list):
        yield from document["items"]
    elif document is not None:
        yield document


def is_jobset(document: KubeObject) -> bool:
    """Say whether an object is a JobSet of the version that we know."""
    return (document["kind"], document["apiVersion"]) == (wire.KIND, wire.API_VERSION)


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


def _check_form(part: Any, form: Any, path: str, where: str) -> None:
    """Refuse an object that is a JobSet in name only, so that later code need not check.

    Args:
        part: the value to check; None counts as empty.
        form: the named parts of a mapping, or the form of a list's items.
        path: where it stands.
        where: the file and the object, for the message.

    Raises:
        StreamError: a part that must be a mapping or a list is something else.
    """
    if part is None:
        return
    if isinstance(form, dict):
        if not isinstance(part, dict):
            raise StreamError(f"{where}: {path}: expected a mapping, saw {part!r:.80}")
        for key, inner in form.items():
            _check_form(part.get(key), inner, f"{path}.{key}" if path else key, where)
        return
    (item,) = form
    kind, words = (str, "texts") if item is str else (dict, "mappings")
    if (part or kind is dict) and not (isinstance(part, list) and all(isinstance(one, kind) for one in part)):
        raise StreamError(f"{where}: {path}: expected a list of {words}, saw {part!r:.80}")
    for position, one in enumerate(part if kind is dict else ()):
        _check_form(one, item, f"{path}[{position}]", where)


_CONTAINER: Final[Mapping[str, Any]] = {
    **{name: [{}] for name in ("env", "ports", "volumeMounts", "restartPolicyRules")},
    **{name: {} for name in ("startupProbe", "lifecycle", "resources")},
    **{name: [str] for name in ("command", "args")},
}
_POD: Final = {"containers": [_CONTAINER], "initContainers": [_CONTAINER], "volumes": [{}]}
_JOB: Final = {"template": {"metadata": {"annotations": {}}, "spec": {"template": {"spec": _POD}}}}
_METADATA: Final[Mapping[str, Any]] = {"annotations": {}, "labels": {}}
_FORM: Final[Mapping[str, Any]] = {
    "metadata": _METADATA,
    "spec": {"failurePolicy": {}, "replicatedJobs": [_JOB]},
}
_TRAINER: Final = {"command": [str], "args": [str], "env": [{}], "resourcesPerNode": {}}
_PATCH: Final = {"trainingRuntimeSpec": {"template": {"metadata": _METADATA, "spec": {"replicatedJobs": [_JOB]}}}}
_TRAIN_JOB: Final = {
    "metadata": _METADATA,
    "spec": {"runtimeRef": {}, "trainer": _TRAINER, "annotations": {}, "runtimePatches": [_PATCH]},
}
