"""docs/coming-from.md: what each other kind becomes is clean, and the refusal of the kind names the page."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from inplace.cli.lint.lint import _judged, lint
from inplace.cli.manifests.documents import OTHER_KINDS, StreamError, read_stream
from tests.cli.command import REPOSITORY
from tests.cli.injecting import saved

PAGE = (REPOSITORY / "docs" / "coming-from.md").read_text()
SECTION = re.compile(r"^## (.+?)\n(.*?)(?=^## |\Z)", re.MULTILINE | re.DOTALL)
BLOCK = re.compile("```yaml\n(.*?)```", re.DOTALL)
IMAGE = re.compile(r'image: "?([^",}\s]+)')
SECTIONS = {title: BLOCK.findall(text) for title, text in SECTION.findall(PAGE)}


def test_each_kind_that_a_refusal_knows_is_on_the_page() -> None:
    """A section has the kind's manifest and the JobSet's; a RayJob is told in its cluster's."""
    kinds = {
        (before["apiVersion"].partition("/")[0], before["kind"])
        for before, _ in (map(yaml.safe_load, blocks) for blocks in SECTIONS.values())
    }
    assert kinds | {("ray.io", "RayJob")} == OTHER_KINDS


@pytest.mark.parametrize("title", SECTIONS)
def test_a_kind_and_its_jobset(tmp_path: Path, title: str) -> None:
    """Before: refused, and the page is named. After: lint finds no error, and the API servers' rules take it."""
    before, after = SECTIONS[title]
    with pytest.raises(StreamError, match="coming-from"):
        read_stream(saved(tmp_path, before))
    stream = read_stream(saved(tmp_path, after))
    (report,) = _judged(lint(stream))
    assert report.in_place
    assert [finding.rule for finding in report.findings] == []


@pytest.mark.parametrize("title", SECTIONS)
def test_the_pods_stay(title: str) -> None:
    """As many Pods as before, with the same images."""
    before, after = map(yaml.safe_load, SECTIONS[title])
    spec: dict[str, Any] = after["spec"]
    pods = sum(job["template"]["spec"]["parallelism"] for job in spec["replicatedJobs"])
    assert pods == PODS[title]
    assert set(IMAGE.findall(SECTIONS[title][0])) == set(IMAGE.findall(SECTIONS[title][1]))
    assert before["metadata"]["name"] == after["metadata"]["name"]


PODS = {"PyTorchJob": 4, "MPIJob": 3, "LeaderWorkerSet": 8, "Indexed Job": 8, "Volcano Job": 9, "RayCluster": 5}
