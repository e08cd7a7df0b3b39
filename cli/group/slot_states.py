"""Find what is known of one slot that has a Pod, for the headline of its JobSet. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set

from inplace.cli.group.pod_facts import PodFact, Roles
from inplace.cli.group.straggler import Straggler
from inplace.common.injection.pod_roles import Member
from inplace.common.jobset.headline import SlotState
from inplace.common.jobset.scopes import Scope
from inplace.common.protocol.slot import Slot


def roles_of(member: Member) -> Roles:
    """Return which containers of a replicatedJob's Pods do what."""
    agent = member.sidecar_agent.name if member.mode == "sidecar" and member.sidecar_agent else ""
    helpers = {one.name for one in member.helpers}
    return Roles(agent, frozenset(one.name for one in member.workers if one.name not in helpers))


def slot_state(pod: PodFact, scope: Scope, roles: Roles, reporting: Set[str]) -> SlotState:
    """Return what is known of a slot with a Pod."""
    runs = scope.is_running
    if pod.is_done and runs:
        return SlotState.COMPLETED
    if not pod.is_live or pod.is_placeless:
        return SlotState.VACANT
    if pod.epoch == scope.synced + 1:
        return SlotState.WAITING
    if not runs or pod.epoch != scope.synced:
        return SlotState.PENDING
    if (failure := pod.failure) is not None and failure.epoch == scope.synced:
        return SlotState.FAILED if failure.stalled_s is None else SlotState.SILENT
    if pod.is_working(roles):
        return SlotState.STEPS if pod.name in reporting else SlotState.RUNS
    return SlotState.COMPLETED if pod.has_completed(roles) else SlotState.STARTS


def first_of(
    states: Mapping[Slot, SlotState], pods: Mapping[Slot, PodFact], stragglers: Iterable[Straggler]
) -> dict[SlotState, str]:
    """Return the first Pod of each state; of those that are waited for with the reason."""
    first: dict[SlotState, str] = {}
    late = {one.slot: f"{one.name} ({one.reason})" for one in stragglers}
    for slot, state in states.items():
        first.setdefault(state, late.pop(str(slot), pods[slot].name))
    for unseen in late.values():  # slots without a Pod
        first.setdefault(SlotState.VACANT, unseen)
    return first
