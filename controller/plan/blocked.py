"""
Report containers that kubelet cannot start: an image that cannot be pulled, a Secret that is missing.

The condition ContainersBlocked has the Pods' number, the container, its image and kubelet's words. It is written some
seconds after the first Pod, so that it counts them all, and a passing fault is not told. An Event tells of each cause
once. Other numbers are written rarely, because every status write reaches all agents. docs/adr/0089
"""

from __future__ import annotations

from typing import Final

from inplace.common.jobset import conditions
from inplace.common.jobset.blocked import IMAGE
from inplace.controller.plan.draft import REWORD_S, Draft

HOLD_S: Final = 4.0  # kubelet tells of a Pod's containers within a second or two; who looks wants it within 10 s
CAUSES_MAX: Final = 3  # that are told; an Event has room for as many


def tell_blocked(draft: Draft) -> bool:
    """Set ContainersBlocked to what blocks containers now."""
    causes = draft.observed.blocked
    is_told = draft.is_true(conditions.CONTAINERS_BLOCKED)
    if not causes:
        draft.set(conditions.NONE_BLOCKED)
        return False
    if not is_told and draft.observed.blocked_s < HOLD_S:
        draft.look_again(HOLD_S - draft.observed.blocked_s)
        return False
    told = draft.message_of(conditions.CONTAINERS_BLOCKED)
    is_news = any(f"{cause.sample.cause}:" not in told for cause in causes[:CAUSES_MAX])
    every_s = HOLD_S if is_news else REWORD_S
    if not is_told or draft.may_reword(every_s):
        words = [*map(str, causes[:CAUSES_MAX])]
        words += [f"{len(causes) - CAUSES_MAX} causes more"] if len(causes) > CAUSES_MAX else []
        wanted = conditions.containers_blocked("; ".join(words), image=causes[0].sample.what == IMAGE)
        draft.set(wanted, quietly=not is_news)
    draft.look_again(every_s)
    return False
