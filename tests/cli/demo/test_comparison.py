"""`inplace demo` runs four restarts of one group, and README's figures are in line with them."""

from __future__ import annotations

import json
import re
from io import StringIO
from typing import Any

import pytest
from rich.console import Console

from inplace.cli.demo.comparison import alternatives
from inplace.cli.demo.demo import DemoOptions, run_demo
from inplace.cli.demo.group import ComparedRestart, KillRecord
from inplace.cli.demo.manifest import DemoManifest, read_demo_manifest
from inplace.cli.demo.view import comparison_table
from inplace.simulator.cluster.events import ClusterEvent, Kind
from tests.cli.command import run
from tests.docs.test_numbers_page import HOW_FAST, figure_of_5000_pods

TITLES = [
    "this restart, inplace's default",
    "clean containers",
    "upstream's shape (probe, no guard)",
    "new Pods (Recreate)",
]
APART = 20.0  # a ratio of two figures of a demo is within this factor of README's, also on a loaded machine


@pytest.fixture(scope="module")
def example() -> DemoManifest:
    """Return the demo's example with eight Pods."""
    return read_demo_manifest(None, None, 1, None)


def seconds_in(cell: str) -> float:
    """Return the first figure of a cell of README's table."""
    found = re.search(r"([\d.]+) s\b", cell)
    assert found is not None, cell
    return float(found[1])


def test_the_alternatives_are_the_example_in_three_shapes(example: DemoManifest) -> None:
    """They train with the same command and name and are as many; only one has a guard, and one has no agent."""
    found = alternatives(example)
    assert list(found) == TITLES[1:]
    assert [manifest.mode for manifest in found.values()] == ["containers", "probe", "probe"]
    assert [bool(manifest.agents) for manifest in found.values()] == [True, True, False]
    for manifest in found.values():
        assert (manifest.name, manifest.pods) == (example.name, example.pods)
        assert manifest.workers == example.workers
        pod = manifest.jobset["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]
        assert pod["containers"][0]["command"] == ["python3", "-m", "inplace.examples.train"]


def test_upstream_s_shape_is_asked_each_second(example: DemoManifest) -> None:
    """Its agent has a startup probe that kubelet repeats, without a header that lets the agent hold its answer."""
    shape = alternatives(example)[TITLES[2]].jobset
    (agent,) = shape["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]["initContainers"]
    probe = agent["startupProbe"]
    assert (probe["periodSeconds"], "timeoutSeconds" in probe) == (1, False)
    assert probe["httpGet"] == {"path": "/barrier-is-lifted", "port": 8080}


def test_a_restart_is_timed_to_its_last_worker(example: DemoManifest) -> None:
    """From the kill until the worker of every Pod was started again; what was before the kill does not count."""
    record = KillRecord(example)

    def tell(at_s: float, kind: Kind, pod: int, container: str = "worker") -> None:
        record.observe(ClusterEvent(at_s, kind, "default", f"pod-{pod}", f"uid-{pod}", container))

    for pod in range(example.pods):
        tell(1.0, Kind.POD_TAKEN, pod, "")
        tell(2.0, Kind.CONTAINER_STARTED, pod)
        tell(3.0, Kind.WORKER_STARTED, pod)
        tell(4.0, Kind.FIRST_STEP, pod)
    assert record.trains
    tell(10.0, Kind.FAULT, 3)
    assert not record.trains
    tell(10.1, Kind.CONTAINER_STARTED, 3)
    for pod in range(example.pods):
        tell(11.0 + pod / 4, Kind.WORKER_STARTED, pod)
        tell(14.0, Kind.FIRST_STEP, pod)
    assert record.trains
    assert record.row("it", 0.5) == ComparedRestart("it", 2.75, 0.5, pods_created=0, containers_started=1)


def test_the_comparison_fits_into_80_columns() -> None:
    """Also with the largest figures, no line is longer and no cell breaks."""
    rows = [ComparedRestart(title, 180.25, 179.75, 10_000, 20_000) for title in TITLES]
    out = StringIO()
    assert all(len(title) <= 34 for title in TITLES)
    Console(file=out, width=80).print(comparison_table(rows))
    lines = out.getvalue().splitlines()
    assert len(lines) == 2 + len(rows)
    assert all(len(line) <= 80 for line in lines)
    assert all(line.strip().startswith(title) for line, title in zip(lines[2:], TITLES, strict=True))


@pytest.mark.slow
def test_the_demo_and_the_readme_agree() -> None:
    """The demo ends with four restarts that it ran; its ratios are README's, within what one loaded machine does.

    README's figures are those of a real node. The first row is the fastest by far, and the only one that starts no
    container and no Pod.
    """
    done = run("demo", "--json")
    assert done.returncode == 0, done.stderr
    shown, rows = done.stderr, comparison(done.stdout)
    assert list(rows) == TITLES
    assert [row["pods_created"] for row in rows.values()] == [0, 0, 0, 8]
    assert [row["containers_started"] for row in rows.values()] == [0, 16, 16, 8]
    assert all(title in shown for title in TITLES)
    assert shown.rstrip().endswith("pods recreated: 0")
    *in_place, recreated = rows.values()
    assert all(0 < row["seconds"] < row["running_s"] for row in in_place)
    assert recreated["seconds"] is None

    ours, clean, upstream, _ = (row["running_s"] for row in rows.values())
    assert ours * 2 < min(clean, upstream)
    readme = {cells[0]: seconds_in(cells[1]) for cells in HOW_FAST}
    demo = dict(zip(readme, (ours, clean, upstream), strict=True))
    for what in list(readme)[:2]:
        told, seen = readme[what] / list(readme.values())[2], demo[what] / upstream
        assert told / APART < seen < told * APART, f"{what}: README {told:.3f} of upstream's, demo {seen:.3f}"


def comparison(stdout: str) -> dict[str, dict[str, Any]]:
    """Return the rows that a demo tells programs, by title."""
    return {row["title"]: row for row in json.loads(stdout.splitlines()[-1])["comparison"]}


@pytest.mark.slow
def test_the_demo_prints_the_readme_s_figure_of_5000_pods(capsys: pytest.CaptureFixture[str]) -> None:
    """Models, virtual time and a fixed seed: every machine prints the same seconds, those of the JobSet's status."""
    options = DemoOptions(5_000, None, "model", None, None, seed=1, json=True, keep=False)
    assert run_demo(options) == 0
    (restart,) = json.loads(capsys.readouterr().out.splitlines()[-1])["restarts"]
    assert f"{restart['seconds']:.1f} s" == figure_of_5000_pods()
