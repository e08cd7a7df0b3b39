"""The record and the report of a run on a real node; the run itself needs a quiet machine with root."""

from __future__ import annotations

import json
from pathlib import Path

from benchmarks.calibration import FIGURES
from benchmarks.node import record, summary
from inplace.simulator.profile import NUMBERS

MEASURED = {
    "sidecar": [{"last_worker": each, "synced": each - 1.0, "cpu_node": 9.6} for each in (4.0, 3.0, 5.0)],
    "supervisor": [{"last_worker": each, "synced": each / 2, "cpu_node": 1.6} for each in (0.5, 0.75, 0.25)],
    "guarded": [{"last_worker": each, "synced": each / 2, "cpu_node": 8.0} for each in (1.0, 1.5, 0.5)],
}


def test_the_record_is_one_that_calibration_reads(tmp_path: Path) -> None:
    """The record has the least, median and greatest time of each mode that the model knows, and a Pod's CPU."""
    file = record(MEASURED, 16, tmp_path)
    kept = json.loads(file.read_text())
    assert kept["measured"] == {
        "sidecar_s": [3.0, 4.0, 5.0],
        "supervisor_s": [0.25, 0.5, 0.75],
        "node.restart_cpu_s": [0.4, 0.4, 0.4],
        "node.start_cpu_s": [0.2, 0.2, 0.2],
        "node.supervised_cpu_s": [0.1, 0.1, 0.1],
    }
    assert {name for name in kept["measured"] if (file.stem, name) not in FIGURES} <= set(NUMBERS)
    assert "no_sync" in kept["machine"]
    assert "3 restarts" in kept["source"]
    assert "--record" in kept["command"]


def test_the_report_has_medians_phases_and_what_was_tuned() -> None:
    """The report has the keys that scripts read; CPU figures come AFTER times."""
    report = summary(MEASURED)
    assert (report["sidecar_s"], report["supervisor_s"]) == (4.0, 0.5)
    assert list(report["phases"]["sidecar"].items()) == [("synced", 3.0), ("last_worker", 4.0), ("cpu_node", 9.6)]
    assert report["tuned"]
