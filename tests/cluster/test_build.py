"""A machine that cannot build a control plane gets a message that names what is missing; nothing is compiled here."""

from pathlib import Path

import pytest

from images.build_once import MissingComponent
from testbed.binaries import Binaries, find_binaries
from testbed.go_module import pinned, print_made
from testbed.go_programs import KUBELAB, KUEUE, KUEUE_MODULE, TRAINER, TRAINER_MODULE, kubelab


@pytest.fixture(autouse=True)
def no_assets(monkeypatch: pytest.MonkeyPatch) -> None:
    """Remove KUBEBUILDER_ASSETS from the environment, so that PATH decides."""
    monkeypatch.delenv("KUBEBUILDER_ASSETS", raising=False)


def test_without_go_the_command_says_how_to_get_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """With no `go` on PATH the command fails, prints no path and names the download page."""
    monkeypatch.setenv("PATH", str(tmp_path))
    assert print_made("kubelab", kubelab) == 1
    output = capsys.readouterr()
    assert output.out == ""
    assert "https://go.dev/dl/" in output.err


def test_old_go_is_refused_before_it_builds(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A Go older than 1.26 is named in the error instead of failing somewhere inside Kubernetes."""
    go = tmp_path / "go"
    go.write_text("#!/bin/sh\necho go version go1.25.9 linux/amd64\n")
    go.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(MissingComponent, match=r"expected Go 1\.26 or newer, saw .*go1\.25\.9"):
        find_binaries()


def test_assets_folder_needs_no_go(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """KUBEBUILDER_ASSETS is used as it is, and a component it lacks is named."""
    monkeypatch.setenv("PATH", "")
    monkeypatch.setenv("KUBEBUILDER_ASSETS", str(tmp_path))
    with pytest.raises(MissingComponent, match="etcd"):
        find_binaries()
    for name in ("etcd", "kube-apiserver"):
        (tmp_path / name).touch()
    assert find_binaries() == Binaries(tmp_path)
    with pytest.raises(MissingComponent, match="kube-scheduler"):
        find_binaries().command("kube-scheduler")


def test_another_compiler_gets_another_binary(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The cache never serves a binary that another Go release built, and it honours INPLACE_CACHE_DIR."""
    monkeypatch.setenv("INPLACE_CACHE_DIR", str(tmp_path))
    older, newer = (
        KUBELAB.cached_path("go version go1.26.0 linux/amd64"),
        KUBELAB.cached_path("go version go1.26.8 linux/amd64"),
    )
    assert older != newer
    assert newer.is_relative_to(tmp_path / "kubelab")


def test_an_older_world_is_older_in_each_part() -> None:
    """Kubernetes, Kueue and Trainer have a file for each world, and its versions are older than the newest."""
    parts = ((KUBELAB, "k8s.io/kubernetes"), (KUEUE, KUEUE_MODULE), (TRAINER, TRAINER_MODULE))
    for module, path in parts:
        versions = [pinned(module.directory / f"{world}.mod", path) for world in ("1.36", "go")]
        older, newest = ([int(number) for number in version[1:].split(".")] for version in versions)
        assert older < newest, path
