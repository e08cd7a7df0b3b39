"""Make the files of a release, each from a source tree; the same tree gives the same bytes."""

from __future__ import annotations

import gzip
import hashlib
import io
import os
import re
import subprocess
import sys
import tarfile
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from images.lock import closure

SUMS: Final = "SHA256SUMS"
CHART: Final = Path("deploy/helm/inplace")
KREW: Final = Path("deploy/krew")
_SDIST: Final = "import sys; from setuptools import build_meta; build_meta.build_sdist(sys.argv[1])"
_FOUND_BY: Final = """\
home: {homepage}
sources:
  - {homepage}
icon: {homepage}/raw/main/docs/images/icon.svg
annotations:
  artifacthub.io/license: Apache-2.0
  artifacthub.io/category: ai-machine-learning
  artifacthub.io/operator: "true"
  artifacthub.io/links: |
    - name: documentation
      url: {homepage}/tree/main/docs
"""
_GAP: Final = re.compile(r"@([A-Z0-9]+)@")
STEP_S_MAX: Final = 600.0


class ReleaseError(Exception):
    """A part cannot be made; the message says why."""


def packages(tree: Path, out: Path, made_at: int) -> list[Path]:
    """Build the wheel and the sdist.

    Args:
        tree: the sources, which setuptools writes into.
        out: where both files go.
        made_at: the time of the files in them, in seconds since 1970.
    """
    environment = os.environ | {"SOURCE_DATE_EPOCH": str(made_at)}
    pip = [sys.executable, "-m", "pip", "wheel", "-q", "--disable-pip-version-check", "--no-index", "--no-deps"]
    run([sys.executable, "-c", _SDIST, str(out)], tree, environment)
    run([*pip, "--no-build-isolation", "-w", str(out), str(tree)], tree, environment)
    for sdist in out.glob("inplace-*.tar.gz"):
        write_archive(sdist, _files_of(sdist))  # setuptools writes times of the moment
    return [*out.glob("inplace-*.tar.gz"), *out.glob("inplace-*.whl")]


def chart(tree: Path, out: Path, version: str, homepage: str, images: Mapping[str, str]) -> Path:
    """Package the Helm chart as `helm package` names it.

    Args:
        tree: the sources.
        out: where the file goes.
        version: of the chart.
        homepage: of the project, for those who find the chart in a catalogue.
        images: the full name of each, which become the chart's defaults.
    """
    source, file = tree / CHART, out / f"inplace-{version}.tgz"
    files = {str(path.relative_to(source)): path.read_bytes() for path in sorted(source.rglob("*")) if path.is_file()}
    files["Chart.yaml"] += _FOUND_BY.format(homepage=homepage.rstrip("/")).encode()
    controller = images["inplace-controller"]
    repository, at, digest_ = controller.partition("@")
    repository = repository.rpartition(":")[0]
    for old, new in (
        ("repository: inplace-controller", f"repository: {repository}"),
        ('digest: ""', f'digest: "{digest_}"' if at else 'digest: ""'),
        ("image: inplace-agent ", f"image: {images['inplace-agent']} "),
    ):
        assert files["values.yaml"].count(old.encode()) == 1, f"values.yaml: expected {old!r} once"
        files["values.yaml"] = files["values.yaml"].replace(old.encode(), new.encode())
    write_archive(file, {f"inplace/{name}": (body, 0o644) for name, body in files.items()})
    return file


def krew_archive(tree: Path, out: Path, wheel: Path, version: str) -> Path:
    """Package the kubectl plugin: the program that installs the wheel, and the hashes of what the wheel needs."""
    file = out / f"kubectl-inplace-{version}.tar.gz"
    lock = closure((tree / "requirements.lock").read_text(), runtime_packages(tree))
    requirements = "".join(package.text for package in lock).encode()
    program = (tree / KREW / "kubectl-inplace").read_bytes()
    files = {
        "LICENSE": ((tree / "LICENSE").read_bytes(), 0o644),
        "kubectl-inplace": (program, 0o755),
        "requirements.txt": (requirements, 0o644),
        wheel.name: (wheel.read_bytes(), 0o644),
    }
    write_archive(file, files)
    return file


def krew_manifest(tree: Path, out: Path, archive: Path, *, version: str, url: str, homepage: str) -> Path:
    """Fill in the manifest of the kubectl plugin."""
    gaps = {
        "VERSION": version,
        "URL": url.rstrip("/"),
        "HOMEPAGE": homepage,
        "ARCHIVE": archive.name,
        "SHA256": digest(archive),
    }
    template = "".join(
        line for line in (tree / KREW / "inplace.yaml").open() if not line.startswith("#")
    )  # which speaks of the template
    file = out / "inplace.yaml"
    file.write_text(_GAP.sub(lambda found: gaps[found[1]], template))
    return file


def runtime_packages(tree: Path) -> list[str]:
    """Return the names of the packages that the wheel declares."""
    project = tomllib.loads((tree / "pyproject.toml").read_text())["project"]
    return [canonicalize_name(Requirement(line).name) for line in project["dependencies"]]


def write_archive(file: Path, contents: Mapping[str, tuple[bytes, int]]) -> None:
    """Write a .tar.gz of files with their modes, without times, owners or an order of the machine's."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for name, (body, mode) in sorted(contents.items()):
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(body), mode
            archive.addfile(entry, io.BytesIO(body))
    file.write_bytes(gzip.compress(packed.getvalue(), mtime=0))


def _files_of(archive: Path) -> dict[str, tuple[bytes, int]]:
    """Return the files of an archive with their modes; folders come with the files."""
    with tarfile.open(archive) as packed:
        files = {entry: packed.extractfile(entry) for entry in packed if not entry.isdir()}
        return {entry.name: (body.read(), entry.mode & 0o755) for entry, body in files.items() if body is not None}


def sums(out: Path, files: Iterable[Path]) -> Path:
    """Write the checksums of files as `sha256sum -c` reads them."""
    file = out / SUMS
    file.write_text("".join(f"{digest(each)}  {each.name}\n" for each in sorted(files)))
    return file


def signature(file: Path, key: str) -> Path:
    """Sign a file with a key of gpg's; return the signature's file."""
    signed = file.with_name(f"{file.name}.asc")
    run(["gpg", "--batch", "--yes", "--local-user", key, "--armor", "--detach-sign", "-o", str(signed), str(file)])
    return signed


def digest(file: Path) -> str:
    """Return a file's SHA-256."""
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def run(command: list[str], folder: Path | None = None, environment: Mapping[str, str] | None = None) -> str:
    """Run a program; return what it printed.

    Raises:
        ReleaseError: it is not there, or failed.
    """
    try:
        done = subprocess.run(
            command, cwd=folder, env=environment, capture_output=True, text=True, timeout=STEP_S_MAX, check=False
        )
    except FileNotFoundError as error:
        raise ReleaseError(f"expected {command[0]} on PATH, found none") from error
    if done.returncode != 0:
        raise ReleaseError(f"{' '.join(command[:4])} failed: {done.stderr.strip() or done.stdout.strip()}")
    return done.stdout
