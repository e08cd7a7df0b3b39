"""
What a cluster installs from a release: deploy/ with images of a registry, as one file and as a folder for kustomize.

The same tree, registry and digests give the same bytes.
"""

from __future__ import annotations

import json
import re
import tarfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import yaml

from release.parts import write_archive

FOLDERS: Final = ("admission", "apf", "base", "controller", "crd", "overlays", "rbac", "workers")  # of deploy/
INSTALL: Final = "install.yaml"
_NAMES: Final = re.compile(r"(image: |image=)(inplace-(?:agent|controller))\b")
_TOGETHER: Final = "kustomization.yaml"


def image_names(registry: str, version: str, digests: Mapping[str, str]) -> dict[str, str]:
    """Return the full name of each image.

    Args:
        registry: with its path; "" leaves the names as they are, for nodes that have the images.
        version: the images' tag.
        digests: of images that were built, by their names.
    """
    names = {}
    for name in ("inplace-agent", "inplace-controller"):
        digest = f"@{digests[name]}" if name in digests else ""
        names[name] = f"{registry.rstrip('/')}/{name}:{version}{digest}" if registry else f"{name}:{version}"
    return names


def digest_of(archive: Path) -> str:
    """Return the digest by which a registry knows the image of an OCI archive."""
    with tarfile.open(archive) as packed:
        index = packed.extractfile("index.json")
        assert index is not None, f"{archive}: expected index.json, as an OCI archive has it"
        (manifest,) = json.load(index)["manifests"]
    return str(manifest["digest"])


def write_manifests(tree: Path, out: Path, version: str, images: Mapping[str, str]) -> None:
    """Write install.yaml, and deploy/ as a folder for `kubectl apply -k`."""
    deploy = (tree / "deploy").resolve()
    folders = [
        deploy / name for name in ("admission", "apf", "base", "controller", "crd", "overlays", "rbac", "workers")
    ]
    files = [deploy / _TOGETHER, *sorted(file for folder in folders for file in folder.rglob("*.yaml"))]
    named = {file: _NAMES.sub(lambda found: found[1] + images[found[2]], file.read_text()) for file in files}
    name = f"inplace-deploy-{version}"
    packed = {f"{name}/{file.relative_to(deploy)}": (text.encode(), 0o644) for file, text in named.items()}
    write_archive(out / f"{name}.tar.gz", packed)
    parts = [named[file].strip() for file in _in_order(deploy)]
    (out / INSTALL).write_text("\n---\n".join(parts) + "\n")


def _in_order(folder: Path) -> Iterator[Path]:
    """Yield the files of a kustomization, and of those that it names, in their order.

    Raises:
        ValueError: it does more than name files.
    """
    found: dict[str, Any] = yaml.safe_load((folder / _TOGETHER).read_text())
    if set(found) != {"resources"}:
        raise ValueError(f"{folder / _TOGETHER}: expected resources alone, saw {', '.join(found)}")
    for name in found["resources"]:
        path = (folder / name).resolve()
        if path.is_dir():
            yield from _in_order(path)
        else:
            yield path
