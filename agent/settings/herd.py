"""
When each agent of a large group sends its first request, so that the group does not arrive at one instant.

Stratified slots: a window is cut into as many strata as the group has Pods, and each Pod takes the one of its own
index, so that arrivals are even and not merely random. The window is what the group needs at `rate_per_s` starts per
second, beyond what a default API server queues anyway; it is bounded, and 0 for small groups. Above GROUP_LARGE Pods
the bound shrinks, because a cluster of more nodes has a larger API server, and because the last Pod to come back waits
for its slot while all others wait for it. Consequence: 1,000 Pods start over 2.8 s (360 per second), 2,000 and more
over 1.5 s (5,000: 3,300 per second, beside what their kubelets spread them anyway).
Most servers need no window. So a sidecar asks at once, and goes on at its slot only when the server's first answers
are late, because a loaded server lets everybody wait (`agent.start.prelude`).
On a cluster with deploy/apf the window is worth nothing: the controller's --start-window=0. docs/adr/0010-herd.md says
why slots, and why these numbers.

Pure: time, environment and the Pod's identity come as arguments.
"""

from __future__ import annotations

from inplace.common.bare.record import record
from inplace.common.bare.typed import Final
from inplace.common.protocol.bounds import INT32_MAX

# API priority and fairness gives one ServiceAccount outside kube-system 6 queues of 50 at the default level
# (k8s.io/apiserver pkg/apis/flowcontrol/bootstrap/default.go): a group of this size is queued, not rejected.
GROUP_FREE: Final = 300
GROUP_SIZE_MAX: Final = INT32_MAX
RATE_PER_S: Final = 250  # starts, of three requests each, 9 ms of CPU in all: what a server of two cores can do
RATE_PER_S_MAX: Final = 100_000
WINDOW_S: Final = 3.0  # the longest window by default
GROUP_LARGE: Final = 1_000  # beyond it, twice the Pods have half the window, down to LEAST_SHARE of the longest
LEAST_SHARE: Final = 0.5
WINDOW_S_MAX: Final = 300.0  # the longest that can be asked for
LATE_S: Final = 0.010  # an idle server's TLS handshake and list take 1 to 5 ms beside the network
ROUND_TRIPS: Final = 1.5  # of the network, which may vary by half
# One patch over an open connection costs the server about a quarter of a start (handshake, list, patch, watch).
PATCHES_PER_START: Final = 4


@record
class Herd:
    """One Pod's place in its group.

    Args:
        size: Pods in the group, at least 1; approximate after an elastic resize, which moves the rate by as much.
        index: this Pod's number, from 0. One beyond `size` wraps around.
        jitter: this Pod's own place inside its stratum, in [0, 1).
        rate_per_s: starts per second that the group aims at, above 0.
        window_s_max: seconds; 0 switches slots off.
    """

    size: int = 1
    index: int = 0
    jitter: float = 0.0
    rate_per_s: float = RATE_PER_S
    window_s_max: float = WINDOW_S

    @property
    def window_s(self) -> float:
        """Return the seconds over which the group spreads its starts; 0 for a group of up to GROUP_FREE."""
        share = max(LEAST_SHARE, min(1.0, GROUP_LARGE / self.size))
        return min(self.window_s_max * share, self._needed_s)

    @property
    def start_slot_s(self) -> float:
        """Return the seconds from this process's start to its first request, in [0, window_s)."""
        return slot_s(self.index, self.size, self.window_s, self.jitter)

    @property
    def restart_slot_s(self) -> float:
        """Return the seconds from a view that restarts the whole group to this Pod's patch.

        For an agent that keeps its connection: all of them see that view at once, whatever the size of the group (no
        kubelet spreads them), and a patch is all they send.
        """
        return slot_s(self.index, self.size, min(self.window_s_max, self._needed_s), self.jitter) / PATCHES_PER_START

    @property
    def spread_s(self) -> float:
        """Return the seconds over which what ends all watches of the group at once is followed by new ones.

        For any window: no worker waits for it, and a queue in the server does not avoid the TLS handshakes.
        """
        return min(WINDOW_S, self._needed_s)

    @property
    def _needed_s(self) -> float:
        return max(0, self.size - GROUP_FREE) / self.rate_per_s


def slot_s(index: int, size: int, window_s: float, jitter: float) -> float:
    """Return where in [0, window_s) Pod `index` of `size` stands: stratum `index`, and inside it at `jitter`."""
    return (index % size + jitter) * window_s / size


def is_late(waited_s: float, round_trip_s: float) -> bool:
    """Say whether an answer for which the agent waited so long came late, on a network with this round trip."""
    return waited_s > LATE_S + ROUND_TRIPS * round_trip_s
