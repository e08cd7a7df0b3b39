"""A release is made whole: packages, chart, kubectl plugin, SBOMs, man page, notes and their checksums."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest
import yaml

from release.changelog import REPOSITORY, stated_version
from release.manifests import digest_of, image_names
from release.parts import digest, write_archive

MAKE_S_MAX = 600.0
URL = "https://example.com/releases/v1"
WHERE = ("--url", f"{URL}/", "--homepage", "https://example.com/inplace", "--registry", "registry.example/team")
LAUNCHER = REPOSITORY / "deploy" / "krew" / "kubectl-inplace"
VERSION = stated_version()
FILES = {
    "NOTES.md",
    "SHA256SUMS",
    f"inplace-{VERSION}-py3-none-any.whl",
    f"inplace-{VERSION}.tar.gz",
    f"inplace-{VERSION}.tgz",
    f"inplace-deploy-{VERSION}.tar.gz",
    "inplace-agent.cdx.json",
    "inplace-controller.cdx.json",
    "inplace.1",
    "inplace.yaml",
    "install.yaml",
    "provenance.intoto.json",
    f"kubectl-inplace-{VERSION}.tar.gz",
}

needs_git = pytest.mark.skipif(not (REPOSITORY / ".git").exists(), reason="a release is made of a git repository")


def make(out: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Make a release without images."""
    command = [sys.executable, "-m", "release", "--without-images", "--out", str(out), *arguments]
    return subprocess.run(
        command,
        cwd=REPOSITORY,
        env=os.environ | environment,
        capture_output=True,
        text=True,
        timeout=MAKE_S_MAX,
        check=False,
    )


@needs_git
@pytest.mark.slow
def test_a_release_is_whole_and_always_the_same(tmp_path: Path) -> None:
    """Every file is there with its checksum; a second run replaces the first one by the same bytes."""
    out = tmp_path / "out"
    done = make(out, *WHERE)
    assert done.returncode == 0, done.stderr
    assert {file.name for file in out.iterdir()} == FILES
    subprocess.run(["sha256sum", "--check", "--quiet", "SHA256SUMS"], cwd=out, check=True)
    assert len((out / "SHA256SUMS").read_text().splitlines()) == len(FILES) - 1
    assert "NO IMAGES" in done.stderr
    assert "NOT SIGNED" in done.stderr
    assert "NO ADDRESS" not in done.stderr

    plugin = yaml.safe_load((out / "inplace.yaml").read_text())
    (platform,) = plugin["spec"]["platforms"]
    archive = out / f"kubectl-inplace-{VERSION}.tar.gz"
    assert plugin["spec"]["version"] == f"v{VERSION}"
    assert (platform["uri"], platform["sha256"]) == (f"{URL}/{archive.name}", digest(archive))
    with tarfile.open(archive) as packed:
        modes = {entry.name: entry.mode for entry in packed}
    assert modes.pop(platform["bin"]) == 0o755
    assert modes.keys() == {"LICENSE", "requirements.txt", f"inplace-{VERSION}-py3-none-any.whl"}
    with tarfile.open(out / f"inplace-{VERSION}.tgz") as packed:
        chart = packed.extractfile("inplace/Chart.yaml")
        assert chart is not None
        found = yaml.safe_load(chart.read())
        assert (found["version"], found["home"]) == (VERSION, "https://example.com/inplace")
        values = packed.extractfile("inplace/values.yaml")
        assert values is not None
        assert yaml.safe_load(values.read())["image"]["repository"] == "registry.example/team/inplace-controller"
    assert json.loads((out / "inplace-agent.cdx.json").read_text())["bomFormat"] == "CycloneDX"

    stated = json.loads((out / "provenance.intoto.json").read_text())
    made = {one["name"]: one["digest"]["sha256"] for one in stated["subject"]}
    assert made == {name: digest(out / name) for name in FILES - {"SHA256SUMS", "provenance.intoto.json"}}
    source, *inputs = stated["predicate"]["buildDefinition"]["resolvedDependencies"]
    assert len(source["digest"]["gitCommit"]) == 40
    assert {one["uri"].partition("#")[2] for one in inputs} == {"images/base.lock", "requirements.lock"}

    before = (out / "SHA256SUMS").read_text()
    assert make(out, *WHERE).returncode == 0
    assert (out / "SHA256SUMS").read_text() == before


@needs_git
@pytest.mark.slow
@pytest.mark.skipif(shutil.which("gpg") is None, reason="needs gpg")
def test_the_checksums_are_signed_with_a_key(tmp_path: Path) -> None:
    """With a key there is a signature that gpg accepts."""
    home = tmp_path / "gpg"
    home.mkdir(mode=0o700)
    environment = {"GNUPGHOME": str(home)}
    gpg = ["gpg", "--batch", "--passphrase", "", "--pinentry-mode", "loopback"]
    try:
        subprocess.run(
            [*gpg, "--quick-generate-key", "release@example.com", "default", "sign", "never"],
            env=os.environ | environment,
            capture_output=True,
            check=True,
            timeout=MAKE_S_MAX,
        )
        out = tmp_path / "out"
        done = make(out, "--sign-key", "release@example.com", **environment)
        assert done.returncode == 0, done.stderr
        assert "NOT SIGNED" not in done.stderr
        subprocess.run(
            ["gpg", "--verify", "SHA256SUMS.asc", "SHA256SUMS"],
            cwd=out,
            env=os.environ | environment,
            capture_output=True,
            check=True,
        )
    finally:
        subprocess.run(["gpgconf", "--kill", "all"], env=os.environ | environment, check=False)


def test_an_image_is_named_by_its_digest_where_it_was_built(tmp_path: Path) -> None:
    """The digest is that of the archive's manifest; an image that was not built has its tag alone."""
    index = json.dumps({"manifests": [{"digest": "sha256:abc"}]}).encode()
    write_archive(tmp_path / "made.tar", {"index.json": (index, 0o644)})
    digests = {"inplace-agent": digest_of(tmp_path / "made.tar")}
    assert image_names("registry.example/team/", "1.2.3", digests) == {
        "inplace-agent": "registry.example/team/inplace-agent:1.2.3@sha256:abc",
        "inplace-controller": "registry.example/team/inplace-controller:1.2.3",
    }
    assert image_names("", "1.2.3", {})["inplace-agent"] == "inplace-agent:1.2.3"


def test_a_folder_with_other_files_is_left_alone(tmp_path: Path) -> None:
    """A folder that holds no release is refused, and keeps its files."""
    (tmp_path / "thesis.txt").write_text("mine")
    done = make(tmp_path)
    assert (done.returncode, [file.name for file in tmp_path.iterdir()]) == (1, ["thesis.txt"])
    assert "choose another --out" in done.stderr


def test_the_plugin_says_that_python_is_missing(tmp_path: Path) -> None:
    """Without Python 3.11 the plugin ends with a sentence, and makes no environment."""
    done = plugin(tmp_path, PYTHON="no-such-python")
    assert done.returncode == 1
    assert "expected Python 3.11 or newer with venv" in done.stderr
    assert not (tmp_path / "environment").exists()


@pytest.mark.slow
def test_a_plugin_that_cannot_be_installed_leaves_nothing_behind(tmp_path: Path) -> None:
    """When pip fails, the next command begins from nothing."""
    done = plugin(tmp_path, PYTHON=sys.executable, PIP_NO_INDEX="1")
    assert done.returncode == 1
    assert "pip could not install the packages" in done.stderr
    assert not (tmp_path / "environment").exists()


def test_an_installed_plugin_runs_at_once(tmp_path: Path) -> None:
    """A whole environment is used as it is, with every argument; the plugin may be called through a link."""
    programs = tmp_path / "environment" / "bin"
    programs.mkdir(parents=True)
    (programs.parent / "ready").touch()
    program = programs / "kubectl-inplace"
    program.write_text('#!/bin/sh\nprintf "<%s>" "$@"\n')
    program.chmod(0o755)
    assert plugin(tmp_path, "logs", "a b", "").stdout == "<logs><a b><>"


def plugin(folder: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run the plugin from a folder of its own, through a link elsewhere."""
    shutil.copy(LAUNCHER, folder)
    (folder / "requirements.txt").write_text("typer==0.28.0 --hash=sha256:" + "0" * 64 + "\n")
    link = folder / "link"
    link.mkdir()
    (link / "kubectl-inplace").symlink_to(folder / "kubectl-inplace")
    return subprocess.run(
        [link / "kubectl-inplace", *arguments],
        env=os.environ | environment,
        capture_output=True,
        text=True,
        timeout=MAKE_S_MAX,
        check=False,
    )
