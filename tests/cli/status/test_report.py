"""`inplace report` sums up what the statuses of JobSets say of restarts."""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from inplace.cli.group.read import read_jobsets
from inplace.cli.status.report import report, report_data, report_picture
from inplace.cli.terminal.console import VisibleConsole
from inplace.common.jobset.goodput import FIELD as GOODPUT
from inplace.common.jobset.goodput import Goodput
from inplace.common.jobset.restart_history import FIELD, PastRestart, fields_of
from inplace.common.kube.resources import JOBSETS, KubeObject
from inplace.common.wire import names as wire
from tests.cli.facts import jobset
from tests.cli.scenes import another, connection, crash, synced, training

PAGE = (Path(__file__).parents[3] / "docs" / "restart-history.md").read_text()
DIED = PastRestart(
    2, trigger="worker_exit", started_at="2026-01-01T00:00:00Z", took_ms=2_000, pod="p", node="node-7", exit_code=1
)
LOST = PastRestart(
    3, trigger="pod_lost", started_at="2026-01-01T01:00:00Z", took_ms=30_000, node="node-2", cost_ms=90_000
)
STEPS = Goodput(2, 3_450.0, 60.0, 90.0, 30)
PRICE = 10.0
NOW_S = 1_767_312_000.0  # a day after these restarts


def one(name: str, *kept: PastRestart, pods: int = 4, goodput: Goodput | None = None, **more: Any) -> KubeObject:
    """Return a JobSet that has restarted."""
    status = wire.status_of_epochs(len(kept) + 1, len(kept)) | {FIELD: fields_of(kept)} | more
    raw = jobset(pods, status=status | ({GOODPUT: goodput.fields()} if goodput else {}))
    raw["metadata"]["name"] = name
    return raw


FAILED: dict[str, Any] = {"conditions": [{"type": "Failed", "status": "True"}], "terminalState": "Failed"}
SOME = [one("train", DIED, LOST, pods=64, goodput=STEPS), one("tune", DIED, pods=8, **FAILED), one("new")]


def shown(jobsets: list[KubeObject], price: float | None = None) -> str:
    """Return the lines that the command prints of these JobSets."""
    console = VisibleConsole(width=150)
    with console.capture() as captured:
        for part in report_picture(report(jobsets, NOW_S), price):
            console.print(part)
    return "\n".join(line.rstrip() for line in captured.get().splitlines())


def test_the_example_is_the_command_s_output() -> None:
    """docs/restart-history.md shows it whole."""
    printed = shown(SOME, PRICE)
    example = textwrap.indent(f"$ inplace report --price 10\n{printed}\n", " " * 4)
    assert example in PAGE, printed


def test_the_numbers_are_those_of_the_statuses() -> None:
    """Goodput where ranks tell steps, the restarts themselves where they do not; each weighed with its Pods."""
    data = report_data(report(SOME, NOW_S), PRICE)
    train, tune, new = data["jobsets"]
    assert (train["name"], train["restarts"], train["trainingTimeRatio"]) == ("train", 2, round(3450 / 3600, 4))
    assert train["podHours"] == pytest.approx(64 * 150 / 3600, abs=0.001)
    assert train["cost"] == pytest.approx(64 * 150 / 360, abs=0.01)
    assert (tune["phase"], tune["trainingTimeRatio"], tune["costSeconds"]) == ("Failed", None, 2.0)
    assert (new["restarts"], new["podHours"]) == (0, 0.0)
    assert data["trainingTimeRatio"] == train["trainingTimeRatio"]
    assert data["restarts"] == 3
    assert [(cause["trigger"], cause["restarts"]) for cause in data["causes"]] == [("pod_lost", 1), ("worker_exit", 2)]
    assert [(node["node"], node["restarts"]) for node in data["nodes"]] == [("node-2", 1), ("node-7", 2)]
    assert data["causes"][0]["podHours"] == pytest.approx(64 * 90 / 3600, abs=0.001)
    assert report_data(report(SOME, NOW_S), None)["cost"] is None


def test_answers_that_were_not_applied_are_summed_up() -> None:
    """Of all JobSets, by kind, and how often they were right."""
    first, second = (replace(DIED, epoch=epoch, observed="nodes") for epoch in (2, 3))
    raw = [one("train", first, second), one("tune", replace(DIED, observed="pause"))]
    found = report_data(report(raw, NOW_S), None)["observed"]
    assert found == [
        {"answer": "nodes", "count": 2, "right": 1, "wrong": 1},
        {"answer": "stall", "count": 1, "right": 0, "wrong": 1},
    ]
    assert "would have acted 3 times: 1 right, 2 wrong (nodes 2, stall 1)" in shown(raw)
    assert "would have acted" not in shown(SOME)


def test_other_jobsets_are_left_out() -> None:
    """Those that recreate Pods, that another controller manages, or that cannot be read."""
    others = [
        jobset(2, failurePolicy={"maxRestarts": 1, "restartStrategy": "Recreate"}),
        jobset(2, managedBy="kueue.x-k8s.io/multikueue"),
        jobset(2) | {"spec": {"replicatedJobs": 7}},
    ]
    assert report(others, NOW_S).jobsets == []
    assert report_data(report([], NOW_S), None)["trainingTimeRatio"] is None


def test_many_nodes_are_not_all_shown() -> None:
    """The table has ten; JSON has all."""
    raw = [one(f"j{n}", PastRestart(2, trigger="pod_lost", took_ms=1, node=f"node-{n}")) for n in range(25)]
    assert "and 15 more: -o json" in shown(raw)
    assert len(report_data(report(raw, NOW_S), None)["nodes"]) == 25


@pytest.mark.virtual_time
async def test_jobsets_are_chosen_by_label() -> None:
    """One request reads those of a selector."""
    async with training(2) as cluster:
        crash(cluster)
        await synced(cluster, 2, 2)
        await cluster.client().create(JOBSETS, "default", another(labels={"team": "vision"}, namespace="default"))
        way = connection(cluster)
        found = report(await read_jobsets(way), NOW_S)
        assert [(one.state.name, one.restarts) for one in found.jobsets] == [("train", 1), ("other", 0)]
        assert found.causes["worker_exit"].pod_hours > 0
        (other,) = report(await read_jobsets(way, selector="team=vision"), NOW_S).jobsets
        assert other.state.name == "other"
