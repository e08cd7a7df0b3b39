"""
Where a barrier answers: our defaults and upstream's.

In a module of its own because `inplace-agent wait`, which stands in front of every start of a worker, needs no more of
the settings than this.
"""

from __future__ import annotations

from common.typed import Final

OUR_PATH: Final = "/barrier-is-lifted"
UPSTREAM_PATH: Final = "/barrier-is-down"
OUR_PORT: Final = 8080
UPSTREAM_PORT: Final = 8081
METRICS_PATH: Final = "/metrics"
HEALTH_PATH: Final = "/healthz"
EPOCH_HEADER: Final = "inplace-epoch"  # of a lifted barrier's answer: decimal, 0 when in-place restart is off
