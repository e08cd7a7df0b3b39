"""
The disturbances of the network.

A `Disturbance` says which requests or streams of which clients are disturbed, how, how often and until when. A
disturbance that has ended costs nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

from inplace.common.kube.http.request import Request, Response
from inplace.simulator.apiserver.status import StatusError


class DisturbanceKind(Enum):
    """The effect of a disturbance on a request or delivery."""

    REFUSE = "refuse"  # the connection is refused: the request was certainly not carried out
    ANSWER = "answer"  # the server answers with an error and does not carry out the request
    LOSE = "lose"  # the request is not carried out and not answered; the client waits for its own deadline
    LOSE_REPLY = "lose reply"  # the request is carried out, and the connection breaks
    HANG_REPLY = "hang reply"  # the request is carried out and not answered; the client waits for its own deadline
    SLOW = "slow"  # the request is carried out `amount` seconds later
    SLOW_REPLY = "slow reply"  # the answer comes `amount` seconds later
    DUPLICATE = "duplicate"  # a delivery comes twice
    DELAY = "delay"  # a delivery comes `amount` seconds later
    SPLIT = "split"  # a delivery comes in two pieces, cut anywhere
    CUT_SHORT = "cut short"  # half a delivery, then the connection breaks
    NO_BOOKMARK = "no bookmark"  # deliveries that hold only bookmarks do not come


ON_REQUESTS = frozenset(
    (
        DisturbanceKind.REFUSE,
        DisturbanceKind.ANSWER,
        DisturbanceKind.LOSE,
        DisturbanceKind.LOSE_REPLY,
        DisturbanceKind.HANG_REPLY,
        DisturbanceKind.SLOW,
        DisturbanceKind.SLOW_REPLY,
    )
)


@dataclass(eq=False, slots=True)
class Disturbance:
    """One disturbance.

    Args:
        fault: the fault whose counter goes up each time.
        clients: predicate on the client's name.
        requests: predicate on the request; for deliveries: on the watch's request.
        left: how often the disturbance still acts.
        amount: seconds; for the effects that name it.
        answer: the server's answer; for ANSWER.
        server: the number of the one disturbed API server; None is all.
    """

    fault: str
    effect: DisturbanceKind
    until_s: float
    clients: Callable[[str], bool] = lambda _: True
    requests: Callable[[Request], bool] = lambda _: True
    left: int = 1_000_000
    amount: float = 0.0
    answer: Response | None = None
    server: int | None = None


def is_write(request: Request) -> bool:
    """Return whether a request changes an object."""
    return request.method != "GET"


def is_lease(request: Request) -> bool:
    """Return whether a request reads or writes the controllers' Lease."""
    return "/leases" in request.path


def refusal(code: int, reason: str, *, retry_after_s: int | None = None) -> Response:
    """Return an error answer as an API server gives it."""
    return StatusError(code, reason, "a fault of the campaign", retry_after_s=retry_after_s).response()
