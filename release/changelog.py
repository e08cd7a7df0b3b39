"""
Read and divide CHANGELOG.md: `## Unreleased` on top, then a section `## VERSION - DATE` of each release.

python -m release.changelog VERSION   makes Unreleased the section of VERSION, and writes VERSION where it is stated
"""

from __future__ import annotations

import re
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

REPOSITORY: Final = Path(__file__).parents[1]
UNRELEASED: Final = "Unreleased"
# Where the version is stated: file, and the pattern of the text around it.
STATED: Final = (
    ("pyproject.toml", r'(?m)^(version = ")([^"]+)(")'),
    ("agent/version.py", r'(?m)^(VERSION = ")([^"]+)(")'),
    ("deploy/helm/inplace/Chart.yaml", r"(?m)^(version: )(\S+)()"),
    ("deploy/helm/inplace/Chart.yaml", r"(?m)^(appVersion: )(\S+)()"),
)
_VERSION: Final = re.compile(r"\d+\.\d+\.\d+(?:-rc\.\d+)?")
_HEADING: Final = re.compile(r"(?m)^## (\S+)(?: - (\d{4}-\d\d-\d\d))?$")


class VersionError(Exception):
    """The files do not agree, or a version cannot be released; the message says what to do."""


def stated_version(root: Path = REPOSITORY) -> str:
    """Return the version.

    Raises:
        VersionError: the files state several.
    """
    found = {}
    for name, pattern in STATED:
        match = re.search(pattern, (root / name).read_text())
        found[f"{name}, {pattern.split('(')[2].rstrip(')')}"] = match[2] if match else "none"
    if len(set(found.values())) > 1:
        raise VersionError(f"expected one version, saw {found}; `python -m release.changelog VERSION` writes it")
    return next(iter(found.values()))


def section(text: str, name: str) -> str | None:
    """Return what the changelog says of a version, or None where it has no such section."""
    headings = list(_HEADING.finditer(text))
    for number, heading in enumerate(headings):
        if heading[1] == name:
            end = headings[number + 1].start() if number + 1 < len(headings) else len(text)
            return text[heading.end() : end].strip()
    return None


def divided(text: str, version: str, date: str) -> str:
    """Return the changelog with what is unreleased under a version, and an empty section on top.

    Raises:
        VersionError: there is nothing to release, or the version has a section already.
    """
    if not section(text, UNRELEASED):
        raise VersionError(f"expected lines below `## {UNRELEASED}` in CHANGELOG.md, saw none: nothing to release")
    if section(text, version) is not None:
        raise VersionError(f"CHANGELOG.md has a section {version} already; choose the next version")
    return text.replace(f"## {UNRELEASED}\n", f"## {UNRELEASED}\n\n## {version} - {date}\n", 1)


def state(version: str, root: Path = REPOSITORY, *, date: str) -> None:
    """Write a version everywhere.

    Raises:
        VersionError: it is no version, or the changelog cannot be divided.
    """
    if not _VERSION.fullmatch(version):
        raise VersionError(f"expected a version such as 1.2.3 or 1.2.3-rc.1, saw {version!r}")
    changelog = root / "CHANGELOG.md"
    changelog.write_text(divided(changelog.read_text(), version, date))
    for name, pattern in STATED:
        file = root / name
        file.write_text(re.sub(pattern, rf"\g<1>{version}\g<3>", file.read_text(), count=1))


def main() -> int:
    """Run the command."""
    if len(sys.argv) != 2:
        print("release.changelog: expected one argument, the version", file=sys.stderr)
        return 2
    try:
        state(sys.argv[1], date=datetime.now(UTC).strftime("%Y-%m-%d"))
    except VersionError as error:
        print(f"release.changelog: {error}", file=sys.stderr)
        return 1
    print(f"{sys.argv[1]} is written; run `make rewrite`, look at `git diff`, commit, and then `make release`")
    return 0


if __name__ == "__main__":
    sys.exit(main())
