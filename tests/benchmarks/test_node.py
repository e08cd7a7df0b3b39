"""The report of a run on a real node; the run itself needs a quiet machine with root."""

from __future__ import annotations

from benchmarks.node import figures_of
from testbed.node import manifests

MEASURED = {
    "probe": [{"last_worker": each, "synced": each - 1.0, "cpu_node": 9.6} for each in (4.0, 3.0, 5.0)],
    "supervisor": [{"last_worker": each, "synced": each / 2, "cpu_node": 1.6} for each in (0.5, 0.75, 0.25)],
    "containers": [{"last_worker": each, "synced": each / 2, "cpu_node": 8.0} for each in (1.0, 1.5, 0.5)],
}


def test_the_report_has_the_moments_in_the_order_of_time() -> None:
    """CPU figures come AFTER times, and every mode has all that was measured of it."""
    figures = figures_of(MEASURED, "")
    assert [*figures.rows] == [*MEASURED]
    assert [*figures.rows["probe"]] == ["synced_s", "last_worker_s", "cpu_node_s"]
    assert figures.middle("probe", "last_worker_s") == 4.0


def test_ratios_are_to_upstreams_own_system_where_it_took_part() -> None:
    """With upstream's own system in the run, every ratio is to that, and not to our agent in its shape."""
    upstream = [{"last_worker": each, "deprecated": 0.5} for each in (3.0, 2.0, 4.0)]
    found = figures_of(MEASURED | {"upstream": upstream, "upstream_shape": [{"last_worker": 1.0}]}, "").ratios()
    assert found["containers / upstream"] == {"last_worker_s": 1.0 / 3.0}
    assert not [pair for pair in found if pair.endswith("upstream_shape")]


def test_upstreams_manifest_has_its_own_shape() -> None:
    """Upstream's agent gets its image, its probe and its variables; nothing of ours stays in the Pod."""
    jobset = manifests.documents("containers", "ns", pods=2, restarts_max=1, evidence=None)[-1]
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
