"""
When the agent of a dead worker tells the controller, so that a group whose workers all die does not tell as one.

The group learns of a death within LEARNED_S of the first PATCH. Whoever's moment comes later keeps silent. The moments
are drawn from a truncated exponential distribution, as in multicast feedback: nearly all of a large group's moments lie
at the end of the window, and some lie at its beginning however many die. A group of up to FEW Pods tells at once.
Source: Nonnenmacher and Biersack, "Scalable feedback for large groups", IEEE/ACM ToN 7(3), 1999. docs/adr/0062 has the
numbers.

Pure: the random number comes as an argument.
"""

from __future__ import annotations

from math import log1p

from inplace.common.bare.typed import Final

FEW: Final = 16  # so many PATCHes at once harm no API server
LEARNED_S: Final = 0.06  # PATCH, the controller's status write, and its way to 5,000 watches


def report_delay_s(size: int, chance: float) -> float:
    """Return the seconds that one Pod of `size` waits before it tells; `chance` is its own, random in [0, 1).

    The window grows with the logarithm of the group: 0.28 s for 100 Pods, 0.51 s for 5,000.
    """
    if size <= FEW:
        return 0.0
    return LEARNED_S * log1p(chance * (size - 1))
