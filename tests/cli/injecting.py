"""Inject without a process: text in, text out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from inplace.cli.inject.jobset import inject
from inplace.cli.inject.pod import InjectOptions
from inplace.cli.manifests.documents import read_stream
from inplace.cli.manifests.text import with_documents
from inplace.cli.manifests.yaml_loader import parse
from inplace.common.kube.resources import KubeObject
from tests.cli.command import REPOSITORY

EXAMPLES = REPOSITORY / "examples"


def injected(text: str, folder: Path, **options: Any) -> str:
    """Return the text of a manifest with the agent in it."""
    file = folder / "manifest.yaml"
    file.write_text(text)
    stream = read_stream(str(file), runtimes=True)
    documents, first = inject(stream.documents, InjectOptions(**options))
    return with_documents(stream, documents, first).text


def example(name: str) -> str:
    """Return the text of an example."""
    return (EXAMPLES / name).read_text()


def jobset_of(text: str) -> KubeObject:
    """Return the only JobSet of a text."""
    (found,) = (document for document in parse(text) if document and document["kind"] == "JobSet")
    return dict(found)


def pod_spec_of(text: str) -> KubeObject:
    """Return the pod spec of the text's first replicatedJob."""
    spec: KubeObject = jobset_of(text)["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]
    return spec
