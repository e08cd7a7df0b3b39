"""List in the status what Pods tell of the workers that run: `status.notices`, docs/adr/0104."""

from __future__ import annotations

from typing import Final

from inplace.common.jobset.notices import listed
from inplace.common.wire import names as wire
from inplace.controller.plan.draft import Draft

EVERY_S: Final = 1.0
"""Between two writes for notices alone: every agent gets each, and one Pod can change its notice without end."""


def list_notices(draft: Draft) -> bool:
    """Write the notices of running epochs; those of an epoch that ends go in the write that ends it."""
    scopes = draft.jobset.scopes_in(draft.status)
    running = {name: scope.synced for name, scope in scopes.items() if scope.is_running}
    notices = listed(one for one in draft.observed.notices if running.get(one.scope) == one.epoch)
    wanted = [notice.fields() for notice in notices]
    if wanted == (draft.status.get(wire.NOTICES) or []):
        return False
    noticed_s = draft.observed.noticed_s
    if noticed_s is not None and noticed_s < EVERY_S and not draft.is_written_anyway:
        draft.look_again(EVERY_S - noticed_s)
        return False
    draft.status[wire.NOTICES] = wanted or None
    return False
