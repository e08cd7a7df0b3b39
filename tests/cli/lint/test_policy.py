"""Lint says in sentences what a manifest does about failures."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from inplace.cli.lint.jobset import check_jobset
from inplace.cli.lint.lint import LintOptions, run_lint
from inplace.cli.lint.policy import duration, policy_sentences
from inplace.common import wire
from tests.controller.manifests import jobset


def annotated(**annotations: str) -> dict[str, Any]:
    """Return a JobSet with annotations by their names in `wire`."""
    manifest = jobset(restarts_max=100)
    manifest["metadata"]["annotations"] = {getattr(wire, name): text for name, text in annotations.items()}
    return manifest


def test_a_ladder_is_told_rung_by_rung() -> None:
    """Each rung with what it does, how often and in which window; then what ends the JobSet."""
    manifest = annotated(ESCALATION="InPlace=3/21600, ReplacePod=1/90, RecreateJobs=1/86400")
    assert list(policy_sentences(manifest)) == [
        "After a failure all workers restart in their Pods: up to 3 times in any 6 h.",
        "Beyond that the Pod that failed first is replaced, and the others restart in place: once in any 90 s.",
        "Beyond that all Jobs are deleted and created anew: once in any 1 d.",
        "Beyond that the JobSet fails, with the reason RestartLimitExceeded.",
        "After 100 restarts in all it fails at the next failure, whatever the windows say.",
    ]


@pytest.mark.parametrize("manifest", [jobset(), annotated(ESCALATION="InPlace=0/5"), {"metadata": None}])
def test_without_a_policy_nothing_is_said(manifest: dict[str, Any]) -> None:
    """Neither where there is none nor where it cannot be read: the finding says that."""
    assert list(policy_sentences(manifest)) == []


@pytest.mark.parametrize(
    ("ladder", "found"),
    [
        ("InPlace=3/0", "'0'"),
        ("InPlace=3/315360000", "'315360000'"),
        ("Backwards=1/60", "'Backwards=1/60'"),
        ("InPlace=64/60,RecreateJobs=64/60", "128"),
    ],
)
def test_a_bad_ladder_is_a_finding(ladder: str, found: str) -> None:
    """Windows of 0 or 10 years, rungs that do not exist, and more uses than maxRestarts."""
    (finding,) = [one for one in check_jobset(annotated(ESCALATION=ladder)) if one.rule == "spec-problem"]
    assert finding.found == found
    assert wire.ESCALATION in finding.path


def test_durations_are_short() -> None:
    """The largest unit that divides them."""
    assert [duration(seconds) for seconds in (86400, 7200, 120, 61)] == ["1 d", "2 h", "2 min", "61 s"]


def test_the_command_prints_them(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """As text after the findings, and for programs under the JobSet's name."""
    file = tmp_path / "manifest.json"
    file.write_text(json.dumps(annotated(ESCALATION="InPlace=1/60")))
    run_lint(str(file), LintOptions())
    assert "\npolicy After a failure all workers restart in their Pods: once in any 1 min.\n" in capsys.readouterr().out
    run_lint(str(file), LintOptions(output="json"))
    (sentences,) = json.loads(capsys.readouterr().out)["policies"].values()
    assert len(sentences) == 3


def test_no_progress_is_told_with_what_it_needs() -> None:
    """With and without seconds."""
    end = "without a higher step than ever before, the JobSet fails: NoProgress."
    first = f"If 3 epochs in a row end by a failure and {end}"
    assert list(policy_sentences(annotated(NO_PROGRESS="3"))) == [
        first,
        "An epoch whose steps no Pod tells is not judged; Pods tell steps only where a watchdog is on.",
    ]
    assert list(policy_sentences(annotated(NO_PROGRESS="3/600"))) == [
        first,
        "An epoch whose steps no Pod tells counts as one without progress if it ran less than 600 s.",
    ]


def test_bad_nodes_are_told() -> None:
    """In a sentence with its numbers."""
    (sentence,) = policy_sentences(annotated(BAD_NODES="2/3600"))
    assert sentence.startswith(
        "Pods and nodes: a node whose worker was the first to fail 2 times within 3600 s, or whose"
    )
