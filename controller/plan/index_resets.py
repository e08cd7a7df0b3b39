"""
Forget how often the indexes of a group failed before, once their Pods have joined.

The Job controller counts each Pod that an index loses, for as long as the Job lives, and waits 10 s x 2^(n-1) for the
next. A group that trains for weeks loses Pods to drains now and then, and would wait minutes for one in the end. A Pod
that joined has shown that its index can work. If it fails again, maxRestarts counts that restart.
docs/adr/0091
"""

from __future__ import annotations

from inplace.controller.plan.actions import ResetIndexBackoff
from inplace.controller.plan.draft import Draft


def reset_index_backoff(draft: Draft) -> bool:
    """Let the Pods that joined say no more of those before them."""
    for pod in draft.observed.index_failures:
        draft.add(ResetIndexBackoff(pod))
    return False
