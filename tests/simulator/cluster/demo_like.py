"""Run a group until Ctrl-C, as a small `inplace demo`. Prints READY once every worker has stepped."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from pathlib import Path

from inplace.simulator.cluster.cluster import Cluster
from inplace.simulator.cluster.manifests import read_manifests, with_pods


async def main() -> None:
    """Run a group of two."""
    async with Cluster(nodes=1) as cluster:
        await cluster.trained(with_pods(read_manifests(Path("examples/train.yaml")), 2), timeout_s=60)
        print("READY", cluster.folder, flush=True)
        await cluster.until(lambda: False, timeout_s=60)


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(main())
    sys.exit(130)
