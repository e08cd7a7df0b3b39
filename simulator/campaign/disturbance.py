"""
The disturbances of the network.

A `Disturbance` says which requests or streams of which clients are disturbed, how, how often and until when. Those
that have ended cost nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

import msgspec

from inplace.common.kube.http import Request, Response


class DisturbanceKind(Enum):
    """What a disturbance does to what it catches."""

    REFUSE = "refuse"  # the connection is refused: certainly nothing was done
    ANSWER = "answer"  # an answer of the server's instead of the deed
    LOSE = "lose"  # the request gets lost: nothing was done, nobody says so, until the client's own deadline
    LOSE_REPLY = "lose reply"  # done, and the connection breaks
    HANG_REPLY = "hang reply"  # done, and nobody says so, until the client's own deadline
    SLOW = "slow"  # `amount` seconds before it is done
    SLOW_REPLY = "slow reply"  # `amount` seconds after it is done
    DUPLICATE = "duplicate"  # a delivery comes twice
    DELAY = "delay"  # a delivery comes `amount` seconds later
    SPLIT = "split"  # a delivery comes in two pieces, cut anywhere
    CUT_SHORT = "cut short"  # half a delivery, then the connection breaks
    NO_BOOKMARK = "no bookmark"  # deliveries that are nothing but bookmarks do not come


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
        fault: whose counter goes up each time.
        clients: whom it concerns.
        requests: which requests of theirs; for deliveries: of the watch's request.
        left: how often it still acts.
        amount: seconds, where the effect has any.
        answer: for ANSWER.
        server: the number of the one API server it concerns; None is all.
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
    """Say whether a request changes something."""
    return request.method != "GET"


def is_lease(request: Request) -> bool:
    """Say whether a request is about the controllers' Lease."""
    return "/leases" in request.path


def refusal(code: int, reason: str, *, retry_after_s: int | None = None) -> Response:
    """Return an error answer as an API server gives it."""
    status = {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "code": code,
        "reason": reason,
        "message": "a fault of the campaign",
    }
    headers = {"content-type": "application/json"}
    if retry_after_s is not None:
        headers["retry-after"] = str(retry_after_s)
    return Response(code, headers, msgspec.json.encode(status))
