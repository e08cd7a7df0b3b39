"""The record and the report of a run on a real node; the run itself needs a quiet machine with root."""

from __future__ import annotations

import json
from pathlib import Path

from benchmarks.calibration import FIGURES
from benchmarks.node import record, summary
from inplace.simulator.profile import NUMBERS
from testbed.node import manifests

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


def test_ratios_are_to_upstreams_own_system_where_it_took_part() -> None:
    """With upstream's own system in the run, every ratio is to that, and not to our agent in its shape."""
    upstream = [{"last_worker": each, "deprecated": 0.5} for each in (3.0, 2.0, 4.0)]
    report = summary(MEASURED | {"upstream": upstream, "upstream_shape": [{"last_worker": 1.0}]})
    assert (report["upstream_s"], report["guarded_s"]) == (3.0, 1.0)
    assert (report["guarded_ratio"], report["supervisor_ratio"]) == (0.333, 0.167)
    assert report["died_to_deprecated_ms"] == {"upstream": 500.0}


def test_upstreams_manifest_has_its_own_shape() -> None:
    """Upstream's agent gets its image, its probe and its variables; nothing of ours stays in the Pod."""
    jobset = manifests.documents("guarded", "ns", pods=2, restarts_max=1, evidence=None)[-1]
    manifests.with_upstreams_agent(jobset)
    pod = jobset["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]
    (agent,), (worker,) = pod["initContainers"], pod["containers"]
    assert "command" not in agent
    assert agent["startupProbe"]["httpGet"] == {"path": "/barrier-is-down", "port": 8081}
    assert {each["name"] for each in agent["env"]} == {"JOBSET_NAME", "POD_NAME"}
    assert worker["command"] == manifests.WORKER
    assert {volume["name"] for volume in pod["volumes"]} == {mount["name"] for mount in worker["volumeMounts"]}
    assert "inplace-agent" not in {agent["image"], worker["image"]}
    assert "automountServiceAccountToken" not in pod
