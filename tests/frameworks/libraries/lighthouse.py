"""torchft's lighthouse: prints its address, and serves."""

from __future__ import annotations

import signal

from torchft.coordination import LighthouseServer

if __name__ == "__main__":
    server = LighthouseServer(bind="127.0.0.1:0", min_replicas=1, join_timeout_ms=100, heartbeat_timeout_ms=1000)
    print(server.address(), flush=True)
    signal.pause()
