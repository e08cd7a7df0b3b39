"""
Full-jitter exponential backoff: a random wait in [0, min(cap, base * 2^attempt)].

Why our own and not tenacity: the agent pays every import 5,000 times, tenacity decides and sleeps in one call (the
sleeper here is the injected clock), and a server's Retry-After must be a floor under the random wait. See
docs/adr/0002-dependencies.md.
Source: Marc Brooker, "Exponential Backoff And Jitter", AWS Architecture Blog, 2015.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random

_DOUBLINGS_MAX = 30  # 2^30 base units is beyond every cap; bounds the shift


@dataclass(slots=True)
class Backoff:
    """Counts failures and draws waits.

    Args:
        base_s: upper bound of the first wait, seconds.
        cap_s: upper bound of every wait, seconds. N agents that all fail retry at about 2N/cap_s requests per second.
        rng: source of randomness.
    """

    base_s: float
    cap_s: float
    rng: Random
    failures: int = field(default=0)

    def next_s(self, floor_s: float = 0.0, width_s: float = 0.0) -> float:
        """Count one failure and return the seconds to wait: `floor_s` (a Retry-After) plus a full-jitter part.

        The jitter is at least as wide as the floor, and as `width_s`: N clients that are all told "8 s" come back over
        8 s more.
        """
        ceiling_s = min(self.cap_s, max(floor_s, width_s, self.base_s * 2.0 ** min(self.failures, _DOUBLINGS_MAX)))
        self.failures += 1
        return floor_s + self.rng.uniform(0.0, ceiling_s)

    def reset(self) -> None:
        """Forget the failures after a success."""
        self.failures = 0
