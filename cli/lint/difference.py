"""
Compare a template that has the agent with what the controller makes of it. Pure.

In a copy the agent's pieces are taken out and made anew, with the same annotations, by what makes them for inject and
controller (common/injection). Then the pieces of both are compared (cli/lint/pieces.py).
"""

from __future__ import annotations

from collections.abc import Iterator
from copy import deepcopy
from dataclasses import replace
from typing import Final

from inplace.cli.lint.agent import config_of
from inplace.cli.lint.pieces import NOTHING, Piece, Reason, pieces_of
from inplace.cli.terminal.visible import one_line
from inplace.common.injection import agent_pieces, index_backoff
from inplace.common.injection.agent_pieces import CONTAINER_RESTART
from inplace.common.injection.finding import Finding
from inplace.common.injection.job import change_job, unread_settings
from inplace.common.injection.pod import InjectOptions, change_pod
from inplace.common.injection.pod_roles import Member
from inplace.common.injection.policies import CHECKS, add_policies
from inplace.common.wire.barrier import OUR_PORT

TEMPLATE_BROKEN: Final = "template-broken"
TEMPLATE_DIFFERS: Final = "template-differs"
_FIX: Final = (
    "write each + line; `inplace inject` adds what is missing. Or take the agent and its guards out of the template: "
    "the controller then adds them"
)
# What injection adds to a worker's container, or to a supervisor's. NAMESPACE tells our names from upstream's.
_VARIABLES: Final = {
    *(str(entry["name"]) for entry in agent_pieces.variables(port=0)),
    agent_pieces.LINK["name"],
    CHECKS,
} - {"NAMESPACE", "BARRIER_PORT"}
_KEPT: Final = ("name", "image", "ports")  # of a sidecar's agent
_COMMAND: Final = ("COMMAND",)  # of an image whose own nobody knows here


def check_differences(member: Member, group_pods: int) -> Iterator[Finding]:
    """Yield one finding for each container, Pod and Job template that differs."""
    made = _anew(member)
    wanted = {(piece.place, piece.key): piece.text for piece in pieces_of(made, group_pods)}
    if member.agent is not None and made.agent is not None:  # an agent in the wrong place has moved
        moved = {key: text for (place, key), text in wanted.items() if place == made.agent.path}
        wanted |= {(member.agent.path, key): text for key, text in moved.items()}
    differing: dict[str, list[tuple[Piece, str]]] = {}
    for piece in pieces_of(member, group_pods):
        text = wanted.get((piece.place, piece.key), NOTHING)
        if text not in (piece.text, NOTHING):
            differing.setdefault(piece.place, []).append((piece, text))
    for unread in unread_settings(member, ""):
        place = unread.path.rpartition(".env[")[0]
        piece = Piece(place, unread.path.removeprefix(f"{place}."), unread.found, Reason.SETTING)
        differing.setdefault(place, []).append((piece, unread.needed))
    for place, pieces in differing.items():
        yield _finding(place, pieces)


def _finding(place: str, differing: list[tuple[Piece, str]]) -> Finding:
    """Say what is written, what the controller makes, and what each difference costs."""
    lines = list[str]()
    for piece, text in differing:
        name = f"{piece.key}: " if piece.key else ""
        lines += [f"- {name}{one_line(piece.text)}", f"+ {name}{one_line(text)}", f"  {piece.reason.why}"]
    is_broken = any(piece.reason.severity == "error" for piece, _ in differing)
    keys = {piece.key for piece, _ in differing}
    path = ".".join(filter(None, (place, *keys))) if len(keys) == 1 else place
    return Finding(TEMPLATE_BROKEN if is_broken else TEMPLATE_DIFFERS, path, "\n".join(lines), "the lines with +", _FIX)


def _anew(member: Member) -> Member:
    """Return a copy with the agent's pieces made again; what injection refuses stays as it is written."""
    made = replace(member, raw=deepcopy(member.raw))
    spec, pod, agent = made.job_spec, made.pod_spec, made.agent
    spec.update(agent_pieces.JOB_FIELDS)
    for name in ("completionMode", index_backoff.FIELD):
        spec.pop(name, None)
    if spec.get("parallelism") is not None:
        spec.pop("completions", None)
    list(change_job(made))
    if agent is None:
        return made
    config = config_of(agent)
    port = {"name": "BARRIER_PORT", "value": str(config.barrier_port if config is not None else OUR_PORT)}
    workers = [worker for worker in made.workers if worker not in made.helpers]
    for worker in workers:
        if made.is_guarded and not worker.raw.get("command"):
            worker.raw["command"] = list(_COMMAND)
        for field in ("volumeMounts", "restartPolicy", "restartPolicyRules"):
            worker.raw.pop(field, None)
        taken = _VARIABLES if worker.values.get(CONTAINER_RESTART) else {*_VARIABLES, CONTAINER_RESTART}
        worker.raw["env"] = [entry for entry in worker.raw.get("env") or () if entry.get("name") not in taken]
    if agent.is_agent_alone:
        for kind in ("initContainers", "containers"):
            pod[kind] = [one for one in pod.get(kind) or () if one is not agent.raw]
        kept = {name: agent.raw[name] for name in _KEPT if name in agent.raw}
        alone = {"command": ["inplace-agent"], "restartPolicy": "Always", "env": [port]}
        pod["initContainers"].append(kept | alone)
        if not workers:
            pod["containers"].append({"name": "worker", "command": list(_COMMAND)})
    elif agent.has_upstream_names:
        agent.raw["env"].append(port)
    pod["volumes"] = []
    made = replace(made)  # as it stands now
    names = tuple(worker.name for worker in workers)
    list(change_pod(made, InjectOptions(workers=names, restart_rule=not member.does_without_rules)))
    list(add_policies(made))
    return replace(made)
