"""The step ReplacePod with the simulator's kubelets and real agents: the Pod that failed is another one after."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import pytest

from inplace.common.wire import names as wire
from inplace.simulator.cluster import virtual_time
from inplace.simulator.cluster.cluster import Cluster, virtual_cluster
from inplace.simulator.cluster.manifests import held_by_probe, read_manifests, with_pods

EXAMPLES: Final = Path(__file__).parents[2] / "examples"
TIMEOUT_S: Final = 300.0  # virtual seconds


@pytest.mark.slow
@pytest.mark.parametrize("guarded", [True, False])
def test_the_pod_that_failed_first_is_replaced_and_no_other(guarded: bool) -> None:
    """One restart, one new Pod in the slot of the one that failed; after the second failure all stay."""

    def pods(cluster: Cluster) -> dict[str, str]:
        live = [pod for pod in cluster.pods() if pod.get("status", {}).get("phase") not in ("Failed", "Succeeded")]
        return {pod["metadata"]["name"]: pod["metadata"]["uid"] for pod in live}

    def status(cluster: Cluster) -> dict[str, Any]:
        return dict(cluster.jobset("train").get("status") or {})

    async def main() -> None:
        *others, jobset = with_pods(read_manifests(EXAMPLES / "train.yaml"), 4)
        documents = [*others, jobset if guarded else held_by_probe(jobset)]
        for document in documents:
            if document["kind"] == wire.KIND:
                escalation = {wire.ESCALATION: "ReplacePod=1,InPlace=2,window=3600"}
                document["metadata"].setdefault("annotations", {}).update(escalation)
        async with virtual_cluster(nodes=5, pods_per_node=1) as cluster:
            await cluster.apply(documents)
            await cluster.until(lambda: status(cluster).get(wire.SYNCED_EPOCH) == 1, timeout_s=TIMEOUT_S)
            await cluster.clock.sleep(10.0)
            before = pods(cluster)
            victim = next(iter(before))
            cluster.kill_worker("default", victim)
            await cluster.until(lambda: status(cluster).get(wire.SYNCED_EPOCH) == 2, timeout_s=TIMEOUT_S)
            await cluster.clock.sleep(60.0)
            after = pods(cluster)
            assert status(cluster)[wire.SYNCED_EPOCH] == 2, "one failure, one restart"
            assert victim not in after
            assert before.items() - after.items() == {(victim, before[victim])}
            assert len(after) == len(before)
            assert status(cluster)[wire.ESCALATION_USES][0]["pod"] == victim
            cluster.kill_worker("default", next(iter(after)))
            await cluster.until(lambda: status(cluster).get(wire.SYNCED_EPOCH) == 3, timeout_s=TIMEOUT_S)
            await cluster.clock.sleep(60.0)
            assert pods(cluster) == after
            assert [use["escalationStep"] for use in status(cluster)[wire.ESCALATION_USES]] == ["ReplacePod", "InPlace"]

    virtual_time.run(main())
