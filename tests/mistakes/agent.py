"""Mistakes in the agent's machine and in its supervisor's, which campaign and model checker must find."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from inplace.common.bare.record import replace
from inplace.common.protocol import pod as pod_machine
from inplace.common.protocol.agent import Announce, NotAccepted, Verdict, is_fresh, judge
from inplace.common.protocol.agent import step as step_agent
from inplace.common.protocol.pod import PodState, Step, StopWorker
from tests.mistakes.mistake import instead_of


def _announces_beside(original: Callable[..., Step], state: PodState, event: Any) -> Step:
    after, actions = original(state, event)
    if any(isinstance(action, StopWorker) for action in actions):
        return pod_machine._begin_again(replace(state, agent=after.agent))
    return after, actions


def _gives_up_refused(original: Callable[..., Any], state: Any, event: Any) -> Any:
    after, actions = original(state, event)
    is_again = isinstance(event, NotAccepted) and any(isinstance(action, Announce) for action in actions)
    return after, () if is_again else actions


EVERY_VIEW_IS_FRESH: Final = instead_of(is_fresh, lambda original, *_: True)
LIFTS_BEFORE_SYNC: Final = instead_of(
    judge,
    lambda original, epoch, view: Verdict.SYNCED if (verdict := original(epoch, view)) is Verdict.PENDING else verdict,
)
SYNCED_BEATS_DEPRECATED: Final = instead_of(
    judge,
    lambda original, epoch, view: Verdict.SYNCED if view.in_place and epoch == view.synced else original(epoch, view),
)
NOT_ANNOUNCED_AGAIN: Final = instead_of(step_agent, _gives_up_refused)
ANNOUNCES_BESIDE_ITS_WORKER: Final = instead_of(pod_machine._follow, _announces_beside)
