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

from inplace.cli.lint.agent import settled_environment
from inplace.cli.lint.pieces import AWAITED, NOTHING, Piece, Reason, pieces_of
from inplace.cli.terminal.visible import one_line
from inplace.common.injection import agent_pieces, index_backoff
from inplace.common.injection.finding import Finding
from inplace.common.injection.job import change_job
from inplace.common.injection.pod import InjectOptions, change_pod
from inplace.common.injection.pod_roles import Container, Member
from inplace.common.injection.policies import add_policies
from inplace.common.injection.unread_settings import unread_settings
from inplace.common.kube.resources import KubeObject
from inplace.common.wire.barrier import UPSTREAM_PORT

TEMPLATE_BROKEN: Final = "template-broken"
TEMPLATE_DIFFERS: Final = "template-differs"
_FIX: Final = (
    "write each + line; `inplace inject` adds what is missing. Or take the agent and its guards out of the template: "
    "the controller then adds them"
)
# What injection adds to a container, and adds again where it is not there. NAMESPACE tells our names from upstream's.
_VARIABLES: Final = {
    *(str(entry["name"]) for entry in agent_pieces.variables(port=0)),
    agent_pieces.LINK["name"],
    AWAITED,
} - {"NAMESPACE", "BARRIER_PORT"}
_KEPT: Final = ("name", "image", "ports")  # of a sidecar's agent


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
    for name in ("completionMode", index_backoff.FIELD, *(["completions"] if spec.get("parallelism") else [])):
        spec.pop(name, None)
    list(change_job(made))
    if agent is None:
        return made
    workers = [worker for worker in made.workers if worker not in made.helpers]
    for worker in workers:
        if made.is_guarded and not worker.raw.get("command"):
            worker.raw["command"] = ["COMMAND"]  # its image's
        for field in ("volumeMounts", "restartPolicy", "restartPolicyRules"):
            worker.raw.pop(field, None)
        worker.raw["env"] = _others(worker)
    if agent.is_agent_alone:
        for kind in ("initContainers", "containers"):
            pod[kind] = [one for one in pod.get(kind) or () if one is not agent.raw]
        kept = {name: agent.raw[name] for name in _KEPT if name in agent.raw}
        pod["initContainers"].append(
            kept | {"command": ["inplace-agent"], "restartPolicy": "Always", "env": _others(agent)}
        )
    made = replace(made)  # as it stands now
    list(change_pod(made, InjectOptions(workers=tuple(worker.name for worker in workers))))
    list(add_policies(made))
    return replace(made)


def _others(container: Container) -> list[KubeObject]:
    """Return the variables that injection does not make; one of ours tells that upstream's names do not hold."""
    others = [entry for entry in container.raw.get("env") or () if entry.get("name") not in _VARIABLES]
    if container.has_upstream_names:
        port = settled_environment(container).get("STARTUP_PROBE_PORT", str(UPSTREAM_PORT))
        others.append({"name": "BARRIER_PORT", "value": port})
    return others
