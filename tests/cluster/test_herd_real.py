"""The herd benchmark on a real kube-apiserver with few agents."""

import pytest

from benchmarks.herd import CAPACITY, WITH_APF, WITHOUT, Variant, open_bench
from testbed.binaries import Binaries

pytestmark = pytest.mark.asyncio(loop_scope="session")

AGENTS = 20
OBVIOUS = Variant("obvious", apf=False, obvious=True)


async def test_every_agent_lists_patches_and_watches_once(binaries: Binaries) -> None:
    """In each variant (with and without deploy/apf, obvious client) an agent sends three requests without failure."""
    async with open_bench(AGENTS, processes=2, settle_s=0.0) as bench:
        for variant in (WITHOUT, CAPACITY, WITH_APF, OBVIOUS):
            measured = await bench.measure(variant, concurrency=4)
            assert measured.failures == {}, variant
            assert measured.requests == 3 * AGENTS, variant
            assert measured.rejected == measured.rejected_by_server == 0, variant
            assert 0 < measured.median_s <= measured.seconds
            assert measured.server_cpu_s > 0
