"""`inplace history`: restarts as the status keeps them, of a JobSet that runs and of one that has ended."""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import Any

import pytest

from inplace.cli.status.explain import read_facts
from inplace.cli.status.explanation import explain
from inplace.cli.status.history import history_data, history_lines, repeats_text, why_empty
from inplace.cli.status.restart import request_restart
from inplace.common.jobset.restart_history import FIELD, PastRestart, fields_of, history_of
from inplace.common.wire import names as wire
from tests.cli.facts import jobset, text_of
from tests.cli.scenes import connection, crash, status, synced, training, until

PAGE = (Path(__file__).parents[3] / "docs" / "restart-history.md").read_text()
LINE = "RuntimeError: CUDA error: uncorrectable ECC error encountered"
BAD = "train-workers-0-2-8wt6n"
EXIT = "worker_exit"
KEPT = (
    PastRestart(2, "", "manual", "2026-01-01T02:10:04Z", 4_210, 0, "20260101-0210", last_step=120, cost_ms=41_000),
    PastRestart(
        3, "", "pod_lost", "2026-01-01T02:31:40Z", 21_800, 0, "", "train-workers-0-0-6p76h", "node-0", None,
        "DeletionByTaintManager", "", 611, lost_steps=11, cost_ms=63_500,
    ),
    PastRestart(
        4, "", EXIT, "2026-01-01T02:40:12Z", 1_940, 12, "", BAD, "node-7", 1, "", LINE, 812,
        lost_steps=12, cost_ms=33_100,
    ),
    PastRestart(5, "", EXIT, "2026-01-01T02:41:09Z", 1_870, 11, "", BAD, "node-7", 1, "", LINE, 812),
)  # fmt: skip


def shown(*kept: PastRestart) -> str:
    """Return the lines that the command prints of these restarts."""
    raw = jobset(4, status=wire.status_of_epochs(5, 4) | {FIELD: fields_of(kept)})
    lines = history_lines(history_data(raw)["restarts"])
    return "\n".join([*lines, *filter(None, [repeats_text(kept)])])


def test_the_example_is_the_command_s_output() -> None:
    """docs/restart-history.md shows it whole."""
    assert textwrap.indent(f"$ inplace history train\n{shown(*KEPT)}\n", " " * 4) in PAGE, shown(*KEPT)


@pytest.mark.virtual_time
async def test_the_restarts_of_a_group_are_listed_after_its_end() -> None:
    """A kill, a request and the failure that was one too many, with their Pods, when no Pod is left."""
    async with training(maxRestarts=1) as cluster:
        first = crash(cluster)
        await synced(cluster, 2)
        await request_restart(connection(cluster), "train", save_s=0)
        await synced(cluster, 3)
        last = crash(cluster)
        await until(cluster, lambda: status(cluster).get("terminalState") == "Failed" and not cluster.pods())
        data = history_data(cluster.jobset("train"))
        assert data["phase"] == "Failed"
        assert [(one["epoch"], one["trigger"]) for one in data["restarts"]] == [
            (2, "worker_exit"),
            (3, "manual"),
            (4, "worker_exit"),
        ]
        failures = [one["firstFailure"] for one in data["restarts"]]
        assert [failure and (failure["pod"], failure["exitCode"]) for failure in failures] == [
            (first, 137),
            None,
            (last, 137),
        ]
        assert data["restarts"][1]["request"]
        assert (data["restarts"][0]["seconds"] or 0.0) > 0.0
        assert data["restarts"][2]["seconds"] is None


@pytest.mark.virtual_time
async def test_explain_says_what_failures_have_in_common() -> None:
    """Of a failed JobSet: how often in a row, and what was always the same."""
    async with training(2, maxRestarts=2) as cluster:
        for epoch in (2, 3):
            crash(cluster)
            await synced(cluster, epoch, 2)
        crash(cluster)
        await until(cluster, lambda: status(cluster).get("terminalState") == "Failed")
        facts = await read_facts(connection(cluster), "train")
        text = text_of(explain(facts, now_s=cluster.clock.wall_s()))
        assert "3 failures in a row, always killed by SIGKILL (137), in Pod train-workers-0-0-" in text
        assert "inplace history train -n default" in text


@pytest.mark.parametrize(
    ("failures", "words"),
    [
        ([], ""),
        ([PastRestart(2, trigger="worker_exit", exit_code=1)], ""),
        ([PastRestart(2, trigger="worker_exit", exit_code=1), PastRestart(3, trigger="worker_exit", exit_code=2)], ""),
        (
            [PastRestart(epoch, trigger="worker_exit", exit_code=1, last_step=30) for epoch in range(2, 7)],
            "5 failures in a row, always at step 30, with exit code 1",
        ),
        ([PastRestart(2, trigger="stalled", last_step=30), PastRestart(3, trigger="manual", last_step=30)], ""),
    ],
)
def test_what_is_the_same_is_said(failures: list[PastRestart], words: str) -> None:
    """Only of failures in a row, and only of what is known of two."""
    assert repeats_text(failures) == words


@pytest.mark.parametrize(
    ("raw", "words"),
    [
        (jobset(2, status=wire.status_of_epochs(1, 0)), "has not restarted in place yet"),
        (jobset(2, status=wire.status_of_epochs(3, 2)), "has restarted, and its status has no restartHistory: the con"),
        (jobset(2, failurePolicy={"maxRestarts": 1, "restartStrategy": "Recreate"}), "does not restart in place"),
        (jobset(2, managedBy="kueue.x-k8s.io/multikueue"), "is managed by another controller, kueue.x-k8s.io/multik"),
    ],
)
def test_an_empty_history_says_why(raw: dict[str, Any], words: str) -> None:
    """An older controller or definition keeps none, and is named as the reason."""
    assert why_empty(raw).startswith(words)
    assert history_data(raw)["restarts"] == []
    assert history_of(raw["status"]) == ()
