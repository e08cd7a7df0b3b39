"""What a run on a real node keeps and prints; the run itself needs a quiet machine with root."""

from __future__ import annotations

import json
from pathlib import Path

from benchmarks.calibration import FIGURES
from benchmarks.node import record, summary

MEASURED = {
    "sidecar": [{"last_worker": each, "synced": each - 1.0, "cpu_node": 8.0} for each in (4.0, 3.0, 5.0)],
    "supervisor": [{"last_worker": each, "synced": each / 2, "cpu_node": 1.0} for each in (0.5, 0.75, 0.25)],
}


def test_the_record_is_one_that_calibration_reads(tmp_path: Path) -> None:
    """Least, median and most of each mode, under the figures' own names, with command, machine and source."""
    file = record(MEASURED, 16, tmp_path)
    kept = json.loads(file.read_text())
    assert kept["measured"] == {"sidecar_s": [3.0, 4.0, 5.0], "supervisor_s": [0.25, 0.5, 0.75]}
    assert {(file.stem, name) for name in kept["measured"]} <= set(FIGURES)
    assert "no_sync" in kept["machine"]
    assert "3 restarts" in kept["source"]
    assert "--record" in kept["command"]


def test_the_report_has_medians_phases_and_what_was_tuned() -> None:
    """The keys that scripts read; what took CPU comes after what took time."""
    report = summary(MEASURED)
    assert (report["sidecar_s"], report["supervisor_s"]) == (4.0, 0.5)
    assert list(report["phases"]["sidecar"].items()) == [("synced", 3.0), ("last_worker", 4.0), ("cpu_node", 8.0)]
    assert report["tuned"]
