"""The default port and paths of a barrier: ours and upstream's."""

from __future__ import annotations

from inplace.common.bare.typed import Final

OUR_PATH: Final = "/barrier-is-lifted"
UPSTREAM_PATH: Final = "/barrier-is-down"
WORKER_QUERY: Final = "worker"  # behind "?": asks whether the worker was started, too
OUR_PORT: Final = 8080
UPSTREAM_PORT: Final = 8081
METRICS_PATH: Final = "/metrics"
HEALTH_PATH: Final = "/healthz"
