"""
Make manifests out of a Go module's folder, and point their webhooks at a program on loopback.

Nothing of another project is stored in this repository: its CRDs, roles, webhooks and default configuration come from
the very module that its program is built from.

Manifests name a Service, which the API server of a real cluster reaches in a Pod. Here the program is a process beside
the API server, so that each `clientConfig` becomes a URL with the certificate authority that vouches for the program.
The paths, the rules and the failure policy stay the manifest's own.

Usage:
    plane.serving_certificate(folder)              # tls.crt and tls.key, for the program's certDir
    documents = on_loopback(documents, port, plane.ca)
"""

from __future__ import annotations

import base64
import subprocess
from collections.abc import Iterable, Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any, Final

import yaml

from images.build_once import BuildFailed, MissingComponent
from testbed.ports import LOOPBACK

Document = dict[str, Any]

ADMISSION: Final = ("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration")
KUSTOMIZE_S_MAX: Final = 60.0  # it takes two seconds; more means that it waits for a network


def kustomized(folder: Path) -> list[Document]:
    """
    Return the documents of a kustomization; it may name files only.

    Raises:
        MissingComponent: kubectl is absent.
        BuildFailed: kubectl refused the kustomization.
    """
    command = ("kubectl", "kustomize", str(folder))
    try:
        ended = subprocess.run(command, capture_output=True, text=True, timeout=KUSTOMIZE_S_MAX, check=False)
    except FileNotFoundError as error:
        raise MissingComponent("expected kubectl on PATH; https://kubernetes.io/docs/tasks/tools/ has it") from error
    if ended.returncode != 0:
        raise BuildFailed(f"expected {' '.join(command)} to succeed: {ended.stderr}")
    return documents(ended.stdout)


def documents(text: str) -> list[Document]:
    """Return the documents of a YAML text, without empty ones."""
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # CRDs have a megabyte: 5 s without the C loader
    return [document for document in yaml.load_all(text, Loader=loader) if document]


def on_loopback(documents: Iterable[Document], port: int, ca: Path) -> list[Document]:
    """
    Return the documents with every webhook at https://127.0.0.1:`port`, for admission and for CRD conversion.

    Args:
        documents: any manifests; those without a webhook come back as they are.
        port: where the program serves its webhooks.
        ca: the certificate authority of the program's certificate, a PEM file.
    """
    bundle = base64.b64encode(ca.read_bytes()).decode()
    changed = deepcopy(list(documents))
    for document in changed:
        for holder in _holders(document):
            path = holder["clientConfig"]["service"].get("path", "/")
            holder["clientConfig"] = {"url": f"https://{LOOPBACK}:{port}{path}", "caBundle": bundle}
    return changed


def _holders(document: Document) -> Iterator[Document]:
    """Yield each part of a document that has a `clientConfig` with a Service."""
    found: list[Document] = []
    if document["kind"] in ADMISSION:
        found = document.get("webhooks") or []
    elif document["kind"] == "CustomResourceDefinition":
        found = [document["spec"].get("conversion", {}).get("webhook") or {}]
    yield from (holder for holder in found if "service" in holder.get("clientConfig", {}))
