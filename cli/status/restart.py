"""`inplace restart`: ask the controller for one group restart in place, and wait for it if told to."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from secrets import token_hex
from typing import Final

from inplace.cli.beside import beside
from inplace.cli.connection import Connection, command
from inplace.cli.group.read import read_jobset
from inplace.cli.group.scope_state import noun_of
from inplace.cli.group.state import state_of_status
from inplace.cli.lint.agent_policies import save_within_s
from inplace.cli.refusal import RefusalError
from inplace.cli.terminal.moments import duration_text
from inplace.common.injection.as_made import as_made
from inplace.common.injection.pod_roles import members
from inplace.common.jobset.headline import ENDED, NOT_RUNNING, GroupPhase
from inplace.common.jobset.requests import RestartRequest
from inplace.common.jobset.settings import RESTART
from inplace.common.kube.resources import JOBSETS, KubeObject
from inplace.common.wire import names as wire

CANNOT: Final = NOT_RUNNING | {
    GroupPhase.OTHER: "it does not restart in place (spec.failurePolicy.restartStrategy)",
    GroupPhase.UNREADABLE: "its controller cannot read it; `inplace explain` says why",
}


@command
async def run_restart(connection: Connection, name: str, *, wait: bool, timeout_s: float, save_s: int = 0) -> None:
    """Request a restart of a JobSet; with `wait` return when it is done."""
    request = await request_restart(connection, name, save_s)
    saving = f"; its workers have {save_s} s to save first" if save_s else ""
    print(f"restart {request} of JobSet {name} requested{saving}", flush=True)
    if wait:
        await _wait(connection, name, request, timeout_s)


async def request_restart(connection: Connection, name: str, save_s: int = 0) -> str:
    """Annotate the JobSet with a fresh request, and return its id; the workers may save for `save_s` seconds first.

    Raises:
        RefusalError: no controller would carry it out, or no worker would save.
    """
    raw = await read_jobset(connection, name)
    state = state_of_status(raw)
    if state.managed_by is not None:
        raise RefusalError(f"JobSet {name} is managed by {state.managed_by}: our controller ignores it")
    if state.phase in CANNOT:
        raise RefusalError(f"JobSet {name} cannot be restarted in place: {CANNOT[state.phase]}")
    if save_s and not _can_save(raw):
        raise RefusalError(
            f"no worker of JobSet {name} would be asked to save: expected a time to save "
            f"({RESTART.named('save-within')} on the JobSet), saw none; leave out --save to restart at once"
        )
    request = f"{datetime.now(UTC):%Y%m%dt%H%M%S}-{token_hex(3)}"
    annotations = {wire.RESTART_REQUESTED: str(RestartRequest(request, save_s))}
    patch = {"metadata": {"uid": raw["metadata"]["uid"], "annotations": annotations}}
    await connection.client.patch(JOBSETS, connection.namespace, name, patch)
    return request


def _can_save(raw: KubeObject) -> bool:
    """Say whether some agent asks its workers to save."""
    agents = [(member, member.agent) for member in members(as_made(raw).jobset)]
    return any(agent is not None and save_within_s(member, agent) > 0 for member, agent in agents)


async def _wait(connection: Connection, name: str, request: str, timeout_s: float) -> None:
    """Return when the restart is done.

    Raises:
        RefusalError: it was not within `timeout_s`, or the JobSet ended.
    """
    from inplace.cli.status.watch import StatusWatch

    watch = StatusWatch(connection, name)
    try:
        async with beside(watch.jobsets.run), asyncio.timeout(timeout_s):
            while (done := outcome(watch.jobset(), request)) is None:
                await watch.changed.wait()
                watch.changed.clear()
        print(done)
    except TimeoutError:
        raise RefusalError(
            f"expected the restart within {duration_text(timeout_s)}, saw no end of it: inplace explain {name} says why"
        ) from None


def _is_only_noted(status: KubeObject, request: str) -> bool:
    """Say whether the controller took a request of which no restart comes: none began, and no worker saves for it."""
    parts = (status, *(status.get(wire.SCOPED_EPOCHS) or ()))
    saves = any((part.get(wire.SAVING) or {}).get("request") == request for part in parts)
    saves |= any(_lost_saving(part) for part in parts)
    return status.get(wire.LAST_RESTART_REQUEST) == request and not saves


def _lost_saving(part: KubeObject) -> bool:
    """Say whether a running epoch's next one is exempt: an older CRD dropped the time to save, and a restart comes."""
    synced, deprecated = wire.epochs_of_status(part)
    return synced > deprecated and part.get(wire.LAST_EXEMPT_EPOCH) == synced + 1


def outcome(raw: KubeObject | None, request: str) -> str | None:
    """Say how it ended; None for not yet.

    Raises:
        RefusalError: the JobSet ended instead.
    """
    if raw is None:
        return None
    state = state_of_status(raw)
    if state.phase in ENDED:
        raise RefusalError(f"the JobSet ended meanwhile: {CANNOT[state.phase]}")
    last = state.last
    if last is None or last.request != request:
        if _is_only_noted(raw.get("status") or {}, request):
            raise RefusalError(
                f"the controller noted request {request}, and restarts nothing for it: the group has not started yet, "
                f"or a restart is under way already; inplace status {state.name} shows it; ask again when it is over"
            )
        return None
    if last.synced_at is None:
        return None
    took = f" in {duration_text(last.seconds)}" if last.seconds is not None else ""
    then = f"their first steps were not waited for (inplace status {state.name})"
    everyone = f"every {noun_of(state.scopes)}"
    return f"restarted{took}: {everyone} is at epoch {last.epoch}, and the workers start; {then}"
