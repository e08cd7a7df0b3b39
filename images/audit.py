"""Ask PyPI for advisories about every version of requirements.lock.

Exit code 1 if a locked version has an advisory. If PyPI does not answer (no network, a mirror without the JSON pages),
the program says so and exits with 0. pip-audit counts a mirror's 404 as a package without advisories and prints "No
known vulnerabilities found".

Usage: python -m images.audit [--source URL]
"""

from __future__ import annotations

import argparse
import json
import sys
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

from pip._internal.models.index import PyPI

from images.lock import Package, packages

LOCK: Final = Path(__file__).parents[1] / "requirements.lock"
SOURCE: Final[str] = PyPI.pypi_url  # the address is pip's
ANSWER_S_MAX: Final = 20.0
ANSWER_BYTES_MAX: Final = 20_000_000  # a page lists the files of one version, some 1,000 lines
AT_ONCE: Final = 8
SILENT_MAX: Final = 3  # packages without an answer after which the audit stops asking
ACCEPTED: Final[Mapping[str, str]] = {}
"""Accepted advisories, by id or alias, each with the reason."""


@dataclass(frozen=True, slots=True)
class Advisory:
    """A vulnerability of one version.

    Args:
        names: its id and its aliases.
        fixed_in: versions without it.
    """

    package: str
    names: tuple[str, ...]
    summary: str
    fixed_in: tuple[str, ...]

    def __str__(self) -> str:
        fixed = ", ".join(self.fixed_in) or "no version yet"
        return f"{self.package}: {' '.join(self.names)}: {self.summary}; fixed in {fixed}"


@dataclass(frozen=True, slots=True)
class Unanswered:
    """A package for which the source gave no answer."""

    package: str
    why: str


Fetch = Callable[[str], bytes]


def fetched(url: str) -> bytes:
    """Return the content of an address.

    Raises:
        OSError: it cannot be had.
    """
    with urllib.request.urlopen(url, timeout=ANSWER_S_MAX) as answer:  # noqa: S310 - the caller's own address
        body: bytes = answer.read(ANSWER_BYTES_MAX)
    return body


def about(package: Package, source: str, fetch: Fetch) -> list[Advisory] | Unanswered:
    """Return the advisories about one locked version, without withdrawn and accepted ones."""
    spelled = f"{package.name} {package.version}"
    try:
        page: Mapping[str, Any] = json.loads(fetch(f"{source}/{package.name}/{package.version}/json"))
        found = page["vulnerabilities"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        return Unanswered(spelled, f"{type(error).__name__}: {error}")
    advisories = [
        Advisory(
            spelled,
            (str(each["id"]), *map(str, each.get("aliases") or ())),
            " ".join(str(each.get("summary") or each.get("details") or "").split())[:200],
            tuple(map(str, each.get("fixed_in") or ())),
        )
        for each in found
        if not each.get("withdrawn")
    ]
    return [advisory for advisory in advisories if not ACCEPTED.keys() & set(advisory.names)]


def audit(locked: Sequence[Package], source: str, fetch: Fetch) -> tuple[list[Advisory], list[Unanswered]]:
    """Return all advisories, and the packages without an answer."""
    ask = partial(about, source=source, fetch=fetch)
    tried = [ask(package) for package in locked[:SILENT_MAX]]
    rest = locked[SILENT_MAX:]
    if all(isinstance(each, Unanswered) for each in tried):
        tried += [Unanswered(f"{package.name} {package.version}", "not asked") for package in rest]
    else:
        with ThreadPoolExecutor(AT_ONCE) as pool:
            tried += pool.map(ask, rest)
    unanswered = [each for each in tried if isinstance(each, Unanswered)]
    return [advisory for each in tried if not isinstance(each, Unanswered) for advisory in each], unanswered


def main(arguments: list[str] | None = None, fetch: Fetch = fetched) -> int:
    """Print the findings; return 1 when there is an advisory."""
    parser = argparse.ArgumentParser(prog="images.audit", description=__doc__.partition("\n")[0])
    parser.add_argument("--source", default=SOURCE, metavar="URL", help="PyPI's JSON pages (default: %(default)s)")
    source = parser.parse_args(arguments).source.rstrip("/")
    locked = list(packages(LOCK.read_text()).values())
    advisories, unanswered = audit(locked, source, fetch)
    for advisory in advisories:
        print(f"audit: {advisory}", file=sys.stderr)
    if unanswered:
        print(
            f"audit: NOT AUDITED: {len(unanswered)} of {len(locked)} locked packages; {unanswered[0].package}: "
            f"{unanswered[0].why}. Run `make audit` where {source} answers.",
            file=sys.stderr,
        )
    print(
        f"audit: {len(locked) - len(unanswered)} of {len(locked)} locked packages asked, {len(advisories)} advisories"
    )
    return 1 if advisories else 0


if __name__ == "__main__":
    sys.exit(main())
