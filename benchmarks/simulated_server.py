"""
Serve the embedded API server from a process of its own, so that its work does not slow down the program that measures.

Prints its URL, and ends when its standard input does.

    python -m benchmarks.simulated_server
"""

from __future__ import annotations

import asyncio
import gc
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from random import Random

from inplace.common.kube.clock import LoopClock
from inplace.simulator.apiserver import ApiServer, ApiServerOptions, HttpFront


async def _serve() -> None:
    gc.disable()  # among 100,000 Pods a collection stops the server for seconds; no real one is stopped so
    front = HttpFront(ApiServer(clock=LoopClock(), rng=Random(1), options=ApiServerOptions()))
    print(await front.start(), flush=True)
    await asyncio.to_thread(sys.stdin.read)
    await front.stop()


@asynccontextmanager
async def simulated_server() -> AsyncIterator[str]:
    """Start the server, and yield its URL."""
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "benchmarks.simulated_server", stdin=pipe, stdout=pipe
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        yield (await process.stdout.readline()).decode().strip()
    finally:
        process.stdin.close()
        await process.wait()


if __name__ == "__main__":
    asyncio.run(_serve())
