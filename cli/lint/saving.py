"""Check the time that workers have to save before a planned stop. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import Final

from inplace.agent.start.sidecar import UNASKED
from inplace.common.injection.agent_pieces import SAVE_WITHIN
from inplace.common.injection.finding import Finding
from inplace.common.injection.pod_roles import Container, Member
from inplace.common.wire import names as wire

GRACE_S_DEFAULT: Final = 30  # core/v1, terminationGracePeriodSeconds


def check_saving(member: Member, agent: Container) -> Iterator[Finding]:
    """Yield a time to save that kubelet cuts short, and an agent without a guard that would ask the worker."""
    if member.mode == "sidecar" and not agent.values.get("LINK_FILE") and _seconds(agent) > 0:
        fix = f"use `inplace inject`, whose worker has a guard; or remove {wire.SAVE_WITHIN}"
        yield Finding("agent-env", agent.path_of(SAVE_WITHIN), "a time to save", UNASKED, fix)
    within_s = save_within_s(member, agent)
    grace = member.pod_spec.get("terminationGracePeriodSeconds", GRACE_S_DEFAULT)
    if isinstance(grace, int) and within_s > 0 and grace <= within_s:
        fix = f"raise terminationGracePeriodSeconds above {within_s:g}, by the time that the worker takes to end"
        found = f"{within_s:g} s to save of {grace} s until SIGKILL"
        yield Finding("save-grace", f"{member.pod_path}.terminationGracePeriodSeconds", found, "less", fix)


def save_within_s(member: Member, agent: Container) -> float:
    """Return how long workers may take to save before a planned stop; 0 where one of them is not asked."""
    if agent.is_upstream_supervisor:
        return 0.0
    guards = [worker for worker in member.workers if worker not in member.helpers]
    return min(map(_seconds, (agent,) if member.mode == "supervisor" else (agent, *guards)))


def _seconds(container: Container) -> float:
    with suppress(ValueError):
        return float(container.values.get(SAVE_WITHIN) or 0)
    return 0.0
