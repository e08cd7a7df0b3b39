"""
The default address and paths of a barrier: ours and upstream's.

This is a module of its own because `inplace-agent wait`, which runs before every start of a worker, needs only these
settings.
"""

from __future__ import annotations

from inplace.common.bare.typed import Final

OUR_PATH: Final = "/barrier-is-lifted"
UPSTREAM_PATH: Final = "/barrier-is-down"
WORKER_QUERY: Final = (
    "worker"  # behind "?": asks whether the worker was started, too; an older agent answers as without it
)
OUR_PORT: Final = 8080
UPSTREAM_PORT: Final = 8081
METRICS_PATH: Final = "/metrics"
HEALTH_PATH: Final = "/healthz"
EPOCH_HEADER: Final = "inplace-epoch"  # of a lifted barrier's answer: decimal, 0 when in-place restart is off
