from __future__ import annotations

import json
from pathlib import Path
from statistics import median

import pytest

from benchmarks.calibration import RECORDED, compare, table, with_table
from benchmarks.restart_model import Restarting
from inplace import examples
from inplace.simulator.cluster import virtual_time
from inplace.simulator.cluster.cluster import virtual_cluster
from inplace.simulator.cluster.manifests import held_by_probe, read_manifests, with_pods
from inplace.simulator.profile import read_profile

ERROR_MAX = 0.5  # of the worst figure; docs/simulated-numbers.md states each
CLUSTER_ERROR_MAX = 0.2
GROUP_S_MAX = 120.0
PODS = 16


@pytest.mark.slow
def test_the_model_is_as_far_from_the_records_as_is_stated() -> None:
    """Each figure is within the error that the page states, and the page holds this table."""
    found = compare()
    assert found
    assert max(abs(each.error) for each in found) < ERROR_MAX
    assert table(found) in (RECORDED.parents[1] / "docs" / "simulated-numbers.md").read_text()


def test_every_record_says_how_and_where_it_was_made() -> None:
    """Every record has its command and its machine."""
    for path in RECORDED.glob("*.json"):
        record = json.loads(path.read_text())
        assert record["command"]
        assert record["machine"]
        assert record["source"]
        assert all(values == sorted(values) and len(values) == 3 for values in record["measured"].values())


def test_a_figure_that_nothing_computes_is_refused(tmp_path: Path) -> None:
    """A record with a misspelt figure is refused."""
    (tmp_path / "node.json").write_text(json.dumps({"measured": {"sidecars_s": [1, 2, 3]}}))
    with pytest.raises(ValueError, match=r"node\.sidecar_s"):
        compare(tmp_path)


def test_the_page_gets_the_table_and_keeps_the_rest() -> None:
    """--write replaces the old rows, and refuses a page without the table."""
    rows = table([])
    page = f"# Page\n\nBefore.\n\n{rows}\n| herd: old | 1 | 1 | +0% | tested |\n\nAfter.\n\nEnd.\n"
    assert with_table(page, f"{rows}\n| new |") == f"# Page\n\nBefore.\n\n{rows}\n| new |\n\nAfter.\n\nEnd.\n"
    with pytest.raises(ValueError, match="expected a table"):
        with_table("# Page\n", rows)


async def restarted_s(seed: int) -> float:
    """Return the seconds to the last worker of a restart of the embedded cluster, with real agents and controller."""
    timings = read_profile("lab").timings()
    async with virtual_cluster(nodes=PODS, seed=seed, timings=timings) as cluster:
        *others, jobset = with_pods(read_manifests(Path(examples.__file__).parent / "train.yaml"), PODS)
        timeline = await cluster.trained([*others, held_by_probe(jobset)], timeout_s=GROUP_S_MAX)
        await cluster.clock.sleep(3.0 + seed / 5)  # the death then falls into different parts of kubelet's period
        cluster.kill_worker("default", cluster.pods()[seed]["metadata"]["name"])
        restart = await cluster.restarted(timeline, 1, timeout_s=GROUP_S_MAX)
        assert restart.worker_started_s is not None
        return restart.worker_started_s - restart.began_s


def test_the_model_agrees_with_the_embedded_cluster() -> None:
    """With the same profile, the model and the real agents and controller under virtual time take the same time."""
    embedded_s = median(virtual_time.run(restarted_s(seed)) for seed in range(1, 6))
    modelled_s = median(Restarting(read_profile("lab"), PODS, seed=seed).run().total_s for seed in range(1, 16))
    assert modelled_s == pytest.approx(embedded_s, rel=CLUSTER_ERROR_MAX)
