"""The judge of the kills finds what is wrong in the workers' lines, and their manifests stay what the demo reads."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from inplace.cli.demo.manifest import read_demo_manifest
from inplace.common.wire.mode import Mode
from testbed.frameworks.kills import ROUNDING_OF
from testbed.frameworks.manifests import ADDED, EXAMPLES, MODES, documents_of
from testbed.frameworks.worker_lines import Findings, WorkerLines

EXPECTED = {step: f"0.{step}" for step in range(1, 60)}


def epoch(number: int, first: int, last: int) -> str:
    """Return what one worker prints in an epoch that goes on from `first` and reaches `last`."""
    lines = [f"rank=0 world=2 epoch={number} goes on from step {first}"]
    return "\n".join([*lines, *(f"step={s} loss=0.{s} epoch={number} rank=0" for s in range(first + 1, last + 1)), ""])


def findings(*texts: str) -> Findings:
    """Judge these texts."""
    return Findings.of(WorkerLines.of_text("".join(texts)), EXPECTED)


def test_a_good_run_is_clean() -> None:
    """An epoch that goes on from the last checkpoint, with the same losses, is clean; no line at all is not."""
    good = findings(epoch(1, 0, 25), epoch(2, 20, 40))
    assert (good.are_clean, good.epochs, good.steps) == (True, 2, 40)
    assert not findings("").are_clean


@pytest.mark.parametrize(
    ("framework", "loss", "is_same"),
    [
        ("torch", "0.240001", True),
        ("torch", "0.240002", False),
        ("torch", "nan", False),
        ("jax", "0.24", True),
        ("jax", "0.240000001", False),
    ],
)
def test_the_last_digit_of_a_loss_may_differ(framework: str, loss: str, is_same: bool) -> None:
    """PyTorch's may: one of 321 steps of 100 kills did, because its sums have no fixed order. JAX's may not."""
    line = f"step=24 loss={loss} epoch=2 rank=0\n"
    again, first = (
        Findings.of(WorkerLines.of_text(text, ROUNDING_OF[framework]), EXPECTED)
        for text in (epoch(1, 0, 25) + epoch(2, 20, 23) + line, line)
    )
    assert (not again.wrong_losses, not first.wrong_losses) == (is_same, is_same)


@pytest.mark.parametrize(
    ("kind", "bad"),
    [
        ("mixed", "MIXED: expected every process at (epoch, step) = (2, 30), saw ...\n"),
        ("wrong_losses", "step=24 loss=0.25 epoch=2 rank=1\n"),
        ("wrong_losses", "step=41 loss=0.4 epoch=2 rank=0\n"),
        ("wrong_resumes", "rank=1 world=2 epoch=2 goes on from step 10\n"),
        ("wrong_resumes", epoch(3, 20, 41)),
        ("wrong_resumes", epoch(3, 50, 51)),
    ],
    ids=["mixed", "another worker's loss", "another run's loss", "ranks apart", "too far back", "too far on"],
)
def test_each_kind_of_mistake_is_found(kind: str, bad: str) -> None:
    """One bad line among good ones is found, and counted as what it is."""
    found = findings(epoch(1, 0, 25), epoch(2, 20, 40), bad)
    assert not found.are_clean
    assert [name for name in ("mixed", "wrong_losses", "wrong_resumes") if getattr(found, name)] == [kind]


def test_lines_are_read_once_and_whole(tmp_path: Path) -> None:
    """A line that is half written waits for its other half."""
    log = tmp_path / "pod" / "logs" / "worker" / "0.log"
    log.parent.mkdir(parents=True)
    text = epoch(1, 0, 25)
    lines = WorkerLines(tmp_path, "worker")
    for cut in (0, 100, 101, len(text)):
        log.write_text(text[:cut])
        lines.read()
    assert lines.losses == {step: f"0.{step}" for step in range(1, 26)}


def test_a_released_standby_counts() -> None:
    """Supervisor and guard say so in one form; the ranks' own lines do not count."""
    line = (
        '{"timestamp": "2026-11-26T08:00:00.000Z", "level": "info", "event": "standby_released", "epoch": 2, "pid": 7}'
    )
    assert WorkerLines.of_text(epoch(1, 0, 25) + line + "\n").released == 1


@pytest.mark.parametrize("mode", MODES)
def test_an_example_runs_in_each_mode(tmp_path: Path, mode: Mode) -> None:
    """The JAX example is a manifest of each mode, whose worker runs the same command with the same folders."""
    file = tmp_path / "jobset.yaml"
    file.write_text(yaml.safe_dump_all(documents_of(EXAMPLES / "jax.yaml", mode)))
    manifest = read_demo_manifest(file, None, 0, mode)
    pod = manifest.documents[-1]["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]
    worker = pod["containers"][0]
    assert worker["command"][-3:] == ["python3", "-m", "inplace.examples.jax_train"]
    assert manifest.pods == 4
    assert {"checkpoints", "cache"} <= {mount["name"] for mount in worker["volumeMounts"]}
    assert {entry["name"]: entry.get("value") for entry in worker["env"]}["WORLD_SIZE"] == "4"


@pytest.mark.parametrize("framework", ["jax", "torch"])
def test_an_example_without_an_agent_gets_it(framework: str) -> None:
    """The agent's options go before the worker's own command."""
    (jobset,) = documents_of(EXAMPLES / f"elastic-{framework}.yaml", Mode.SUPERVISOR, ["--standby"])
    pod = jobset["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]
    words = ["run", "--standby", "--", "python3", "-m", f"inplace.examples.{framework}_train"]
    assert pod["containers"][0]["command"][1:] == words


@pytest.mark.parametrize("framework", ["jax", "torch"])
def test_an_example_without_an_agent_has_nothing_of_it(framework: str) -> None:
    """What is left of the manifest is what a user says: one JobSet, and in its Pods the worker and its folders."""
    (jobset,) = documents_of(EXAMPLES / f"{framework}.yaml", ADDED)
    pod = jobset["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]
    assert pod["containers"][0]["command"] == ["python3", "-m", f"inplace.examples.{framework}_train"]
    text = yaml.safe_dump(jobset)
    assert [word for word in ("agent", "inplace.dev/", "EPOCH", "EXIT_CODE", "restartPolicy") if word in text] == []
