"""One Pod as the controller sees it: what a `Ledger` counts."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from inplace.common.protocol.resume import Saved
from inplace.common.protocol.slot import Slot


class PodLife(Enum):
    """How alive a Pod is, as far as the barrier cares."""

    LIVE = "live"  # not terminal, not terminating, owned by a current Job
    LEAVING = "leaving"  # terminating, or owned by an old Job: its containers may still run
    SUCCEEDED = "succeeded"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Worker:
    """The worker container as kubelet's status shows it, which may lag what the agent announced.

    Args:
        instance: identifies one run of the container (containerID); "" when none started yet.
        running: state is running.
        failed: state is terminated with a non-zero exit code.
    """

    instance: str = ""
    running: bool = False
    failed: bool = False


@dataclass(frozen=True, slots=True)
class PodView:
    """One Pod as a watch event showed it.

    Args:
        uid: of the Pod.
        slot: where it belongs.
        epoch: announced, int32 >= 1; None when it announced nothing readable.
        failed_epoch: in which its worker died, as its own agent told; None when it told nothing readable.
        name: for messages.
        given_up: Kubernetes deletes it because nobody hears of its node, and its worker ends by itself: it comes back
            in no epoch after this one.
        version: of the Pod as this event showed it, as a number >= 1; 0 where nobody asks.
        ran: the last epoch in which this Pod started a worker, as its agent told with `epoch`; 0 for none.
        saved: what this Pod could load, as its agent told with `epoch`; None where it told nothing.
    """

    uid: str
    slot: Slot
    epoch: int | None = None
    life: PodLife = PodLife.LIVE
    worker: Worker = Worker()
    name: str = ""
    failed_epoch: int | None = None
    given_up: bool = False
    version: int = 0
    ran: int = 0
    saved: Saved | None = None
