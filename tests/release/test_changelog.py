"""A version is stated everywhere at once, and the changelog's unreleased lines become its section."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from release.changelog import REPOSITORY, STATED, VersionError, divided, section, state, stated_version

TEXT = "# Changelog\n\n## Unreleased\n\n* new\n\n## 0.1.0 - 2026-01-02\n\n* old\n"


def test_every_file_states_the_same_version() -> None:
    """The repository agrees with itself."""
    assert stated_version().count(".") == 2


def test_sections() -> None:
    """A section ends where the next begins; a version without one has none."""
    assert (section(TEXT, "Unreleased"), section(TEXT, "0.1.0"), section(TEXT, "0.2.0")) == ("* new", "* old", None)


def test_what_is_unreleased_becomes_a_version() -> None:
    """The lines move under the version; an empty section stays for the next ones, from which nothing is released."""
    after = divided(TEXT, "0.2.0", "2026-02-03")
    assert "## Unreleased\n\n## 0.2.0 - 2026-02-03\n\n* new\n\n## 0.1.0" in after
    with pytest.raises(VersionError, match="nothing to release"):
        divided(after, "0.3.0", "2026-02-04")
    with pytest.raises(VersionError, match=r"section 0\.1\.0 already"):
        divided(TEXT, "0.1.0", "2026-02-03")


def test_a_version_is_written_everywhere(tmp_path: Path) -> None:
    """All files state the new version and keep the rest; files that disagree are refused."""
    for name in {"CHANGELOG.md", *(name for name, _ in STATED)}:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(REPOSITORY / name, tmp_path / name)
    state("7.8.9-rc.1", tmp_path, date="2026-02-03")
    assert stated_version(tmp_path) == "7.8.9-rc.1"
    before, after = ((root / "pyproject.toml").read_text().splitlines() for root in (REPOSITORY, tmp_path))
    assert sum(old != new for old, new in zip(before, after, strict=True)) == 1
    (tmp_path / "agent" / "version.py").write_text('VERSION = "1.0.0"\n')
    with pytest.raises(VersionError, match="expected one version"):
        stated_version(tmp_path)


@pytest.mark.parametrize("version", ["1.2", "v1.2.3", "1.2.3; rm", ""])
def test_what_is_no_version_is_refused(tmp_path: Path, version: str) -> None:
    """Nothing is written."""
    with pytest.raises(VersionError, match=r"such as 1\.2\.3"):
        state(version, tmp_path, date="2026-02-03")
    assert list(tmp_path.iterdir()) == []
