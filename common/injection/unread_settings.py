"""Find settings that Pods carry as annotations, and that their agents or guards do not read (docs/adr/0084). Pure."""

from __future__ import annotations

from collections.abc import Iterator

from inplace.common.agent_command import GUARD
from inplace.common.injection.agent_pieces import DEPTH, SAVE_WITHIN, SETTINGS
from inplace.common.injection.finding import Finding, shown
from inplace.common.injection.pod_roles import Member
from inplace.common.wire import names as wire


def unread_settings(member: Member, rule: str) -> Iterator[Finding]:
    """Yield each variable that has not its annotation's value; one from a ConfigMap or a Secret counts as correct."""
    agent = member.agent
    if agent is None:
        return
    guards = [worker for worker in member.workers if worker.calls(GUARD)]
    for name, annotation in wire.SETTINGS.items():
        if annotation not in member.settings or (name == DEPTH and member.mode == "supervisor"):
            continue
        text = str(member.settings[annotation])
        for container in (agent, *guards) if name == SAVE_WITHIN else (agent,):
            value = container.values.get(name)
            if (value or "") != text and (value is not None or name not in container.env):
                needed = f"{text or 'nothing'}, by fieldRef {SETTINGS[name]}"
                fix = f"read it so, or remove {annotation}"
                yield Finding(rule, container.path_of(name), shown(value), needed, fix)
