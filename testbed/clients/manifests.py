"""
Make manifests out of a Go module's folder.

Nothing of another project is stored in this repository: its CRDs, roles, webhooks and default configuration come from
the very module that its program is built from.
"""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any, Final

import yaml

from images.build_once import BuildFailed, MissingComponent

KUSTOMIZE_S_MAX: Final = 60.0  # it takes two seconds; more means that it waits for a network


def kustomized(folder: Path) -> list[dict[str, Any]]:
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


def documents(text: str) -> list[dict[str, Any]]:
    """Return the documents of a YAML text, without empty ones."""
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # CRDs have a megabyte: 5 s without the C loader
    return [document for document in yaml.load_all(text, Loader=loader) if document]
