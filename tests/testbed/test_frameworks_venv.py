"""An environment of a framework is made only where its name and the disk allow it."""

from __future__ import annotations

from pathlib import Path

import pytest

from images.build_once import BuildFailed
from testbed.frameworks import venv


def test_an_unknown_name_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    """A name without a lock is refused, with the names that have one."""
    assert venv.main(["tensorflow"]) == 2
    assert capsys.readouterr().err == "expected names out of jax, torch, libraries, saw tensorflow\n"


def test_a_full_disk_leaves_a_framework_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Where too little is free nothing is installed, and one line says why."""
    monkeypatch.setenv("INPLACE_CACHE_DIR", str(tmp_path))
    monkeypatch.setitem(venv.FRAMEWORKS, "jax", 1 << 60)
    assert venv.main(["jax"]) == venv.LEFT_OUT
    assert "jax is left out" in capsys.readouterr().err
    assert list((tmp_path / "frameworks").iterdir()) == [tmp_path / "frameworks" / "lock"]


def test_a_failed_installation_is_another_code(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """CI goes on without a framework that has no room, and not without one that cannot be installed."""

    def fail(name: str) -> Path:
        raise BuildFailed(f"pip could not install {name}")

    monkeypatch.setattr(venv, "environment", fail)
    assert venv.main(["jax"]) == 1
    assert capsys.readouterr().err == "pip could not install jax\n"


def test_every_framework_has_its_lock() -> None:
    """Each framework has a lock with hashes, and what it is written from."""
    for name in venv.FRAMEWORKS:
        assert (venv.LOCKS / f"{name}.in").exists()
        assert "--hash=sha256:" in (venv.LOCKS / f"{name}.lock").read_text()


def test_what_is_unpacked_has_its_hash() -> None:
    """Each archive that pip fetches and does not install, too."""
    lines = (venv.LOCKS / "libraries.unpacked").read_text().splitlines()
    named = [line for line in lines if not line.startswith("#")]
    assert len(named) == 2
    assert all("==" in line and " --hash=sha256:" in line for line in named)
