"""Inject without a process: text in, text out."""

from __future__ import annotations

import json
from collections.abc import Iterable
from copy import deepcopy
from functools import cache
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from inplace.cli.inject.inject import Refusal, inject
from inplace.cli.lint.lint import lint
from inplace.cli.manifests.documents import Stream
from inplace.cli.manifests.text import with_documents
from inplace.cli.manifests.yaml_loader import parse
from inplace.common.injection.finding import Finding
from inplace.common.injection.pod import InjectOptions
from inplace.common.kube.resources import KubeObject
from inplace.simulator.cluster.manifests import with_pods
from tests.cli.command import REPOSITORY

EXAMPLES = REPOSITORY / "examples"
_DUMPER: Final = getattr(yaml, "CSafeDumper", yaml.SafeDumper)  # ten times as fast


def injected(text: str, **options: Any) -> str:
    """Return the text of a manifest with the agent in it; the same text with the same options is injected once."""
    key = (text, repr(sorted(options.items())))
    if key not in _injected:
        stream = Stream("manifest", text, parse(text))
        documents, first = inject(stream.documents, InjectOptions(**options))
        _injected[key] = with_documents(stream, documents, first).text
    return _injected[key]


def refused(text: str, **options: Any) -> str:
    """Return the only finding for which a text is refused."""
    with pytest.raises(Refusal) as error:
        injected(text, **options)
    (finding,) = error.value.findings
    return str(finding)


def plain(**lines: str) -> str:
    """Return the plain example with a further line in its metadata, job, pod or worker."""
    text = PLAIN
    for place, line in lines.items():
        anchor = _ANCHORS[place]
        assert anchor in text
        indent = " " * (len(anchor) - len(anchor.lstrip()))
        text = text.replace(anchor, f"{indent}{line}\n{anchor}", 1)
    return text


_ANCHORS: Final = {
    "metadata": "  name: plain",
    "job": "        completions: 8",
    "pod": "            containers:",
    "worker": "              env:",
}


def findings_of(*documents: Any) -> tuple[Finding, ...]:
    """Return what lint says of the JobSets among some documents."""
    return tuple(finding for report in lint(Stream("manifest", "", documents)) for finding in report.findings)


_injected: Final[dict[tuple[str, str], str]] = {}


@cache
def _parsed(text: str) -> tuple[Any, ...]:
    return parse(text)


def documents_of(name: str) -> list[Any]:
    """Return the documents of an example, which the caller may change."""
    return list(deepcopy(_parsed(example(name))))


def example_of(pods: int, name: str = "train.yaml") -> list[Any]:
    """Return the documents of an example of so many Pods, which the caller may change."""
    return with_pods(documents_of(name), pods)


def as_yaml(documents: Iterable[Any]) -> str:
    """Return documents as one text."""
    text: str = yaml.dump_all(documents, Dumper=_DUMPER)
    return text


def saved(folder: Path, text: str) -> str:
    """Write a manifest into a folder and return its path."""
    path = folder / "manifest.yaml"
    path.write_text(text)
    return str(path)


def example(name: str) -> str:
    """Return the text of an example."""
    return (EXAMPLES / name).read_text()


def jobset_of(text: str) -> KubeObject:
    """Return the only JobSet of a text."""
    (found,) = (document for document in _parsed(text) if document and document["kind"] == "JobSet")
    return dict(deepcopy(found))


PLAIN: Final = example("plain.yaml")
FLOW: Final = """\
apiVersion: jobset.x-k8s.io/v1alpha2
kind: JobSet
metadata: {name: minimal, namespace: default}
spec:
  failurePolicy: {maxRestarts: 10, restartStrategy: InPlaceRestart}
  replicatedJobs:
  - name: workers
    template:
      spec: {parallelism: 8, template: {spec: {containers: [
        {name: worker, image: "train:1", command: [python3, train.py]}]}}}
"""
"""examples/minimal.yaml with braces."""

SILENT: Final = PLAIN.replace("              command: [python3, -m, inplace.examples.train]\n", "")
TWO: Final = PLAIN.replace(
    "            volumes:", "            - {name: logger, image: 'logger:1', command: [log]}\n            volumes:"
)


def pod_spec_of(text: str) -> KubeObject:
    """Return the pod spec of the text's first replicatedJob."""
    spec: KubeObject = jobset_of(text)["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]
    return spec


def annotated(text: str = PLAIN, **settings: str) -> str:
    """Return an example whose JobSet has settings as annotations, such as `fence_after="60"`."""
    lines = (f'    inplace.dev/{name.replace("_", "-")}: "{value}"\n' for name, value in settings.items())
    head = "\nmetadata:\n"
    assert text.count(head) == 1
    return text.replace(head, f"{head}  annotations:\n{''.join(lines)}") if settings else text


def with_env(text: str = PLAIN, **variables: str) -> str:
    """Return the plain example, or what was made of it, whose worker has more variables."""
    anchor = "              env:\n"
    lines = (f"              - {json.dumps({'name': name, 'value': value})}\n" for name, value in variables.items())
    assert text.count(anchor) == 1
    return text.replace(anchor, f"{anchor}{''.join(lines)}")
