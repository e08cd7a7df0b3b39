"""
The head start: list and announce before asyncio is imported.

The prelude decides nothing. It sends the requests that the agent will send, takes the epoch from the agent's own
machine (`common.protocol.agent.step`), and stores the epoch BEFORE it announces it. The prelude hands its requests and
their answers to the transport. The agent then sends the same requests, and the transport replays the answers. Anything
unexpected (a refusal, a view that is not fresh, a bypass, garbage) ends the head start, and the agent goes on without
it. So does a late answer in a large group: the agent goes on at its slot, with the connection and the list that are
there (`agent.settings.herd`).

Each import happens while the server works on a request.
"""

from __future__ import annotations

from inplace.agent.report.phases import RestartPhases
from inplace.agent.settings.config import AgentConfig
from inplace.agent.settings.epoch_file import EpochFile
from inplace.agent.settings.herd import is_late
from inplace.common.bare.typed import TYPE_CHECKING, Final
from inplace.common.kube.http.credentials import Credentials, is_address
from inplace.common.kube.http.early_connection import EarlyConnection
from inplace.common.kube.http.request import Response, TransportError

if TYPE_CHECKING:
    import ssl

    from inplace.common.protocol.agent import Announce

HEAD_START_S_MAX: Final = 1.0  # a healthy server takes 10 ms; beyond this the agent waits, and answers probes meanwhile


def head_start(
    config: AgentConfig,
    credentials: Credentials,
    context: ssl.SSLContext | None,
    memory: EpochFile,
    phases: RestartPhases,
) -> tuple[EarlyConnection | None, bool]:
    """List, and announce if the machine wants to.

    Returns:
        The connection, None if the head start failed; and whether the agent goes on at its slot, because an answer was
        late.
    """
    if not is_address(credentials.host):
        return None, False
    ahead = EarlyConnection(credentials, context, within_s=HEAD_START_S_MAX)
    late = False
    try:
        ahead.connect()
        import inplace.agent.announce.jobset_requests  # noqa: F401 - in the shadow of the handshake

        ahead.establish()
        late = _is_late(ahead, config, 0.0) or _list_and_announce(ahead, config, memory, phases)
    except TransportError:  # a request that was not sent: the agent finds out why, with its own patience
        if ahead.in_flight is None and not ahead.outcomes:
            ahead.close()
            return None, False
    return ahead, late


def _is_late(ahead: EarlyConnection, config: AgentConfig, before_s: float) -> bool:
    """Say whether the answers since `before_s` were late, so that the agent waits for its slot, if it has one."""
    return config.start_slot_s > 0 and is_late(ahead.waited_s - before_s, ahead.round_trip_s)


def _list_and_announce(ahead: EarlyConnection, config: AgentConfig, memory: EpochFile, phases: RestartPhases) -> bool:
    """List, and announce unless the list is late; say whether it is."""
    from inplace.agent.announce.jobset_requests import announcement_request, begins_consistent, list_request, saved_in

    ahead.send(list_request(config, as_table=config.prefer_table, consistent=begins_consistent(config)))
    # In the shadow of the list:
    import inplace.agent.announce.jobset_events
    import inplace.common.protocol.agent  # noqa: F401

    phases.recall()
    before_s = ahead.waited_s
    response = ahead.answer()
    if _is_late(ahead, config, before_s):
        return True
    wanted = _wanted(config, response) if response is not None else None
    if wanted is not None and ahead.link.is_reusable:
        epoch = wanted.epoch
        memory.remember(epoch)  # the agent keeps it again, and says so when that fails
        saved = saved_in(config, memory, epoch, wanted.resume)
        ahead.send(announcement_request(config, epoch, phases.announcing(epoch), ran=config.ran_epoch, saved=saved))
    return False


def _wanted(config: AgentConfig, response: Response) -> Announce | None:
    """Return what the machine announces on this list, None when it does anything else."""
    from inplace.agent.announce.jobset_events import ColumnsMissingError, JobSetEvents, is_of, view_of
    from inplace.agent.announce.jobset_requests import begins_consistent
    from inplace.common.protocol.agent import AgentState, Announce, step
    from inplace.common.protocol.errors import RemoteProtocolError

    if response.status >= 300:
        return None
    try:
        jobsets, _ = JobSetEvents().read_list(response.body)
        views = [
            view_of(seen, config, consistent=begins_consistent(config))
            for seen in jobsets
            if is_of(seen, config.jobset_name, config.jobset_uid)
        ]
    except (ColumnsMissingError, TransportError, RemoteProtocolError):
        return None
    if len(views) != 1:
        return None
    state = AgentState(previous=config.previous_epoch, reached=config.reached_epoch, slot=config.slot)
    match step(state, views[0])[1]:
        case (Announce() as wanted,):
            return wanted
    return None
