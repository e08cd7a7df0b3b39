"""Write what a user asks for into a JobSet's annotations, which hold in every mode. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from inplace.agent.start.arguments import ArgumentsError, clean_words
from inplace.common.kube.resources import KubeObject
from inplace.common.protocol.errors import RemoteProtocolError
from inplace.common.wire import names as wire
from inplace.controller.injection.finding import Finding, refusal
from inplace.controller.injection.policies import PolicyOptions
from inplace.controller.injection.worker import fill
from inplace.controller.spec.bad_nodes import read_bad_nodes
from inplace.controller.spec.requests import read_fence


def annotate(metadata: KubeObject, policies: PolicyOptions, depth: str | None) -> Iterator[Finding]:
    """Write the annotations; yield values that cannot be read, and annotations that say otherwise."""
    given = {
        wire.RESTART_DEPTH: depth,
        wire.SAVE_WITHIN: str(policies.save_within_s) if policies.save_within_s else None,
        wire.FENCE_AFTER: policies.fence_after_s,
        wire.BAD_NODES: policies.bad_nodes,
        wire.SPARES: policies.spares,
    }
    options = {name: text for name, text in given.items() if text is not None}
    for read in (read_fence, read_bad_nodes):
        try:
            read(options)
        except RemoteProtocolError as error:
            needed, _, found = str(error).partition(": expected ")[2].partition(";")[0].partition(", saw ")
            option = "--fence-after" if read is read_fence else "--bad-nodes"
            yield refusal(option, found, needed, "correct it")
    if policies.clean:
        try:
            clean_words("--clean", "\n".join(policies.clean))
        except ArgumentsError as error:
            needed, _, found = str(error).partition(": expected ")[2].partition(", saw ")
            yield refusal("--clean", found, needed, "correct it")
    for name, text in options.items():
        old = (metadata.get("annotations") or {}).get(name)
        if old not in (None, text):
            fix = "change the annotation, or leave the option out"
            yield refusal(f'metadata.annotations["{name}"]', old, text, fix)
        fill(metadata, "annotations", {})[name] = text
    deep = (metadata.get("annotations") or {}).get(wire.RESTART_DEPTH)
    if deep not in (None, wire.DEPTH_CONTAINERS, wire.DEPTH_PROCESS):
        needed = f"{wire.DEPTH_CONTAINERS} or {wire.DEPTH_PROCESS}"
        yield refusal(f'metadata.annotations["{wire.RESTART_DEPTH}"]', deep, needed, "use one of them")
    if not policies.check and (policies.check_timeout_s is not None or policies.unanswered is not None):
        fix = "name the check, or leave the other options out"
        yield refusal("--before-announce", "nothing beside its other options", "a command", fix)
