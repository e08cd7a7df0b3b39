"""The base of the images: pinned by digest or reported as unpinned, and written into the images."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest
import yaml

from images.agent_root import FOR_SCRIPTS
from images.build import BASE_LOCK, REPOSITORY, locked_base, main
from images.build_once import BuildFailed

DIGEST = f"sha256:{'0123456789abcdef' * 4}"
PINNED = f"registry.example/python@{DIGEST}"
BUILDAH = """#!/bin/sh
echo "$*" >> {log}
case "$*" in
  *inspect*) echo {digest};;
  *"push "*oci:*) folder=$(echo "$*" | sed 's/.*oci://'); mkdir -p "$folder/blobs/sha256"
    echo '{{"manifests": [{{"digest": "sha256:m"}}]}}' > "$folder/index.json"
    echo '{{"layers": [{{"size": 1}}, {{"size": 2}}]}}' > "$folder/blobs/sha256/m";;
esac
"""


@pytest.fixture
def asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Put a fake buildah on PATH that has every image and records its calls."""
    log, program = tmp_path / "log", tmp_path / "bin" / "buildah"
    program.parent.mkdir()
    log.touch()
    program.write_text(BUILDAH.format(log=log, digest=DIGEST))
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:/usr/bin:/bin")
    return log


def build(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    """Run the program."""
    monkeypatch.setattr(sys, "argv", ["images.build", *arguments])
    return main()


def test_an_image_says_what_it_is_based_on(
    asked: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Both images are built on the pinned base and carry its name and digest, without a warning."""
    assert build(monkeypatch, "--pinned", "--base", PINNED) == 0
    builds = [line for line in asked.read_text().splitlines() if line.startswith("build ")]
    assert len(builds) == 2
    for line in builds:
        assert f"--build-arg=BASE={PINNED} --build-arg=BUILD_BASE={PINNED}" in line
        assert f"--label=org.opencontainers.image.base.name={PINNED}" in line
        assert f"--label=org.opencontainers.image.base.digest={DIGEST}" in line
    assert "NOT PINNED" not in capsys.readouterr().err


def test_a_base_without_a_digest_is_said_aloud(
    asked: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A base without a digest is used, its digest is in the image, and a warning says how to pin it."""
    assert build(monkeypatch, "--base", "python:3.11-slim") == 0
    said = capsys.readouterr().err
    assert "NOT PINNED: python:3.11-slim has no digest; skopeo inspect" in said
    assert f"--label=org.opencontainers.image.base.digest={DIGEST}" in asked.read_text()


@pytest.mark.parametrize(
    "arguments",
    [
        ("--base", "python:3.11-slim"),
        ("--base", PINNED, "--build-base", "python:3.11"),
        ("--base", f"{PINNED}0"),
        ("--debian",),
    ],
    ids=" ".join,
)
def test_a_release_refuses_a_base_without_a_digest(
    arguments: tuple[str, ...], asked: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """With --pinned nothing is pulled or built before every base has a digest."""
    assert build(monkeypatch, "--pinned", *arguments) == 1
    assert "expected IMAGE@sha256:DIGEST for every base, saw " in capsys.readouterr().err
    assert asked.read_text() == ""


def test_the_lock_names_the_containerfiles_base() -> None:
    """The lock names the Containerfiles' default base, so that a build by hand uses the same image."""
    name = locked_base(BASE_LOCK.read_text()).partition("@")[0]
    for file in ("Containerfile", "examples/Containerfile"):
        assert f"ARG BASE={name}\n" in (REPOSITORY / file).read_text()


def test_each_image_of_an_example_has_a_command_that_builds_it() -> None:
    """examples/Containerfile names the images of jax.yaml, torch.yaml and torchrun.yaml, and no other."""
    examples = REPOSITORY / "examples"
    named = {
        container["image"]
        for name in ("jax", "torch", "torchrun")
        for document in yaml.safe_load_all((examples / f"{name}.yaml").read_text())
        if document["kind"] == "JobSet"
        for job in document["spec"]["replicatedJobs"]
        for container in job["template"]["spec"]["template"]["spec"]["containers"]
    }
    assert set(re.findall(r"buildah build .* -t (\S+)", (examples / "Containerfile").read_text())) == named


@pytest.mark.parametrize("text", ["", "# a comment\n", "one\ntwo\n"])
def test_a_lock_that_names_not_one_image_is_refused(text: str) -> None:
    """A lock without exactly one image is refused with the expected and the seen text."""
    with pytest.raises(BuildFailed, match=r"expected the name of one image in base\.lock, saw \["):
        locked_base(text)


def test_the_build_has_every_file_that_a_script_imports() -> None:
    """What images/agent_root.py packs for scripts, the Containerfile copies: a new folder is easily forgotten there."""
    copied = re.findall(r"^COPY (inplace/\S+)", (REPOSITORY / "Containerfile").read_text(), re.MULTILINE)
    missing = [name for name in FOR_SCRIPTS if not any(Path("inplace", name).match(pattern) for pattern in copied)]
    assert missing == []
