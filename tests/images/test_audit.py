"""The audit of the lock: an advisory fails, and a missing answer is printed."""

from __future__ import annotations

import json
from typing import Any

import pytest

from images import audit
from images.lock import packages

COUNT = len(packages(audit.LOCK.read_text()))
ADVISORY = {
    "id": "PYSEC-1",
    "aliases": ["CVE-1"],
    "summary": "Lets\n peers in.",
    "fixed_in": ["9.9"],
    "withdrawn": None,
}


def answers(found: dict[str, Any]) -> audit.Fetch:
    """Return a source with advisories about some packages, and clean answers about the others."""

    def fetch(url: str) -> bytes:
        return json.dumps({"vulnerabilities": found.get(url.split("/")[-3], [])}).encode()

    return fetch


def test_a_clean_lock_passes(capsys: pytest.CaptureFixture[str]) -> None:
    """For a clean lock every package is checked, and the line says how many."""
    assert audit.main([], answers({})) == 0
    assert capsys.readouterr().out == f"audit: {COUNT} of {COUNT} locked packages asked, 0 advisories\n"


def test_an_advisory_fails_and_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    """An advisory fails the audit, with package, version, names and the fixed version."""
    assert audit.main([], answers({"aiohttp": [ADVISORY]})) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("audit: aiohttp ")
    assert line.endswith(": PYSEC-1 CVE-1: Lets peers in.; fixed in 9.9")


def test_a_withdrawn_advisory_is_none() -> None:
    """A withdrawn advisory does not fail the audit."""
    assert audit.main([], answers({"aiohttp": [ADVISORY | {"withdrawn": "2026-01-01T00:00:00Z"}]})) == 0


@pytest.mark.parametrize("answer", [OSError("HTTP Error 404: Not Found"), b"<html>", b"{}", b"[]"], ids=repr)
def test_a_source_that_says_nothing_is_no_clean_bill(
    answer: Exception | bytes, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without network or pages the audit passes, prints that it has no answer, and stops asking."""
    asked = []

    def fetch(url: str) -> bytes:
        asked.append(url)
        if isinstance(answer, Exception):
            raise answer
        return answer

    assert audit.main(["--source", "https://mirror.example/pypi/"], fetch) == 0
    said = capsys.readouterr()
    assert f"NOT AUDITED: {COUNT} of {COUNT} locked packages" in said.err
    assert "Run `make audit` where https://mirror.example/pypi answers." in said.err
    assert f"0 of {COUNT} locked packages asked" in said.out
    assert len(asked) == audit.SILENT_MAX


def test_one_package_without_an_answer_hides_no_other(capsys: pytest.CaptureFixture[str]) -> None:
    """A package without an answer does not stop the audit of the others."""

    def fetch(url: str) -> bytes:
        if "/aiohappyeyeballs/" in url:
            raise TimeoutError("timed out")
        return answers({"structlog": [ADVISORY]})(url)

    assert audit.main([], fetch) == 1
    said = capsys.readouterr()
    assert f"NOT AUDITED: 1 of {COUNT} locked packages; aiohappyeyeballs" in said.err
    assert f"{COUNT - 1} of {COUNT} locked packages asked, 1 advisories" in said.out
