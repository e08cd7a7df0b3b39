"""What no order of the same work can beat: the parts of `restart_model`'s lower bound."""

from __future__ import annotations

from random import Random


def emptied_s(comes_s: list[float], piece_s: float) -> float:
    """Return the earliest end of equal pieces of work that come at these moments and are done one at a time."""
    left = len(comes_s)
    return max(at_s + (left - k) * piece_s for k, at_s in enumerate(sorted(comes_s)))


class Least(Random):
    """Draws the least that a distribution has: the bound's luck."""

    def uniform(self, a: float, b: float) -> float:  # noqa: ARG002
        """Return the lower end."""
        return a

    def lognormvariate(self, mu: float = 0.0, sigma: float = 1.0) -> float:  # noqa: ARG002
        """Return what makes a factor of 1."""
        return 0.0
