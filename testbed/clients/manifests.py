"""
Read manifests out of a Go module's folder.

Nothing of another project is stored in this repository: its CRDs, roles, webhooks and default configuration come from
the very module that its program is built from.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any, Final

import yaml

from images.build_once import BuildFailed, MissingComponent

DOWNLOAD_S_MAX: Final = 600.0  # Kueue's module has 20 MB; a download that takes longer hangs
KUSTOMIZE_S_MAX: Final = 60.0  # it takes a second


@cache
def module_folder(directory: Path, module: str) -> Path:
    """
    Return the folder of a module's sources, in the version that go.mod of `directory` pins and go.sum vouches for.

    Raises:
        MissingComponent: Go is absent.
        BuildFailed: the module is in no cache and could not be downloaded.
    """
    answer = _output(("go", "mod", "download", "-json", module), directory, DOWNLOAD_S_MAX)
    return Path(json.loads(answer)["Dir"])


def kustomized(folder: Path) -> list[dict[str, Any]]:
    """
    Return the documents that a kustomization makes; it may name files only.

    Raises:
        MissingComponent: kubectl is absent.
        BuildFailed: kubectl refused the kustomization.
    """
    return documents(_output(("kubectl", "kustomize", str(folder)), folder, KUSTOMIZE_S_MAX))


def documents(text: str) -> list[dict[str, Any]]:
    """Return the documents of a YAML text, without empty ones."""
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # a megabyte of CRDs: seconds without the C loader
    return [document for document in yaml.load_all(text, Loader=loader) if document]


def _output(command: Sequence[str], directory: Path, timeout_s: float) -> str:
    try:
        ended = subprocess.run(
            command, cwd=directory, capture_output=True, text=True, timeout=timeout_s, check=False, env=None
        )
    except FileNotFoundError as error:
        raise MissingComponent(f"expected `{command[0]}` on PATH, found none") from error
    if ended.returncode != 0:
        raise BuildFailed(f"expected {' '.join(command)} to succeed in {directory}: {ended.stdout}{ended.stderr}")
    return ended.stdout
