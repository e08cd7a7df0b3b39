"""docs/agent.md lists every metric and every phase."""

from __future__ import annotations

import re
from pathlib import Path

from inplace.agent.report.exposition import render
from inplace.agent.report.metrics import AgentMetrics
from inplace.common.wire.phases import TEXT_BYTES_MAX, RestartPhase

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "agent.md").read_text()


def section(title: str) -> str:
    """Return the text under a heading."""
    return PAGE.partition(f"\n## {title}\n")[2].partition("\n## ")[0]


def listed(title: str) -> set[str]:
    """Return the names in the first column of a section's table."""
    first_cells = re.findall(r"^\| (`[^|]*`) \|", section(title), re.MULTILINE)
    return {name for cell in first_cells for name in re.findall(r"`([a-z_]+)`", cell)}


def test_every_metric_is_listed() -> None:
    """The table has exactly the families that an agent exposes."""
    metrics = AgentMetrics()
    metrics.ranks_work_s = {"rank-0": 1.0}
    metrics.heard_s = 0.0
    _, body = render(metrics, now_s=lambda: 1.0)
    assert listed("Metrics") == set(re.findall(r"^# TYPE (\w+)", body.decode(), re.MULTILINE))


def test_every_phase_is_listed() -> None:
    """The table has each phase, and the page names the annotation's bound."""
    assert listed("Phases") == {phase.value for phase in RestartPhase}
    assert f"at most {TEXT_BYTES_MAX} bytes" in PAGE
