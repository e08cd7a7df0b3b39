"""
Find whether ranks report steps in the epoch that runs, which a healthy Pod tells in its agent's log alone. One request.

The log of one Pod stands for the group, whose ranks train in lockstep. It is read from the begin of the epoch on, where
the agent wrote it, so that a supervisor's log, which is its worker's too, is not read through.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from inplace.cli.connection import Connection
from inplace.cli.group.pod_facts import PodFact, roles_of
from inplace.cli.group.state import GroupState, group_state
from inplace.common.injection.as_made import as_made
from inplace.common.injection.pod_roles import Member, group_of
from inplace.common.jobset.causes import unix_time
from inplace.common.jobset.headline import GroupPhase, SlotState
from inplace.common.kube.errors import ApiError
from inplace.common.kube.http.request import TransportError
from inplace.common.kube.resources import PODS, KubeObject
from inplace.common.kube.timestamps import precise_time

READ_BYTES_MAX: Final = 262_144  # of the log, from the begin of the epoch on
KUBELET_S_MAX: Final = 5.0  # for the answer; one that hangs costs a look so long
SKEW_S_MAX: Final = 10.0  # between the controller's clock and a node's; a line names its epoch: older ones do no harm
OURS: Final = b'"event": "'  # in each line of our agent's log, and in none of upstream's
EVENTS: Final = re.compile(rb'"event": "(barrier_lifted|steps_begun)", "epoch": (\d+)')


async def with_steps(
    connection: Connection, raw: KubeObject, pods: Sequence[PodFact], state: GroupState, unread: list[str]
) -> GroupState:
    """Return the state of a JobSet, with the Pod whose ranks report steps if there is one.

    Why a log cannot be read is added to `unread`.
    """
    places = [(scope, first) for scope in state.scopes if (first := scope.slots.first.get(SlotState.RUNS))]
    if state.phase is not GroupPhase.RUNNING or not places:
        return state
    scope, name = places[0]
    slot = next((pod.slot for pod in pods if pod.name == name), None)
    member = next((one for one in group_of(as_made(raw).jobset) if slot and one.name == slot.replicated_job), None)
    query = {"container": _agent_of(member), "limitBytes": str(READ_BYTES_MAX)}
    began_s = unix_time(state.last.synced_at) if state.last is not None and state.last.epoch == scope.synced else None
    if began_s is not None:
        query["sinceTime"] = precise_time(began_s - SKEW_S_MAX)
    path = PODS.path(connection.namespace, name, subresource="log", query=query)
    try:
        body = (await connection.client.raw("GET", path, timeout_s=KUBELET_S_MAX, expects_json=False)).body
    except (ApiError, TransportError) as error:
        unread.append(f"the log of Pod {name}, so it is not known whether its ranks report steps: {error}")
        return state
    events = {(event, int(epoch)) for event, epoch in EVENTS.findall(body)}
    if (b"steps_begun", scope.synced) in events:
        return group_state(raw, pods, reporting=frozenset({name}))
    if (b"barrier_lifted", scope.synced) not in events and OURS in body:
        unread.append(
            f"the begin of epoch {scope.synced} in the log of Pod {name}, so it is not known whether its ranks report "
            "steps: kubelet has that part of the log no more"
        )
    return state


def sees_steps(jobset: KubeObject) -> bool:
    """Say whether an agent can see what ranks report: lint's rule, on the Jobs that would be made."""
    from inplace.cli.lint.agent_policies import is_unwatched  # with the agent's settings; few answers need them

    return not is_unwatched(as_made(jobset).jobset)


def _agent_of(member: Member | None) -> str:
    """Return the container whose log has the agent's lines."""
    if member is None or member.agent is None:
        return ""
    return roles_of(member).agent or member.agent.name
