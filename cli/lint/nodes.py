"""Check a manifest against the nodes: do kubelets restart all containers, and which of their bugs affect it. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from inplace.cli.lint.facts import ClusterFacts, Node
from inplace.cli.lint.kubelet_bugs import BUGS, version_of
from inplace.cli.terminal.moments import names_text
from inplace.common.injection.finding import Finding
from inplace.common.injection.pod_roles import Member

FEATURE: Final = "RestartAllContainersOnContainerExits"  # KEP-5328 declared features; on in 1.36
DECLARED_SINCE: Final = (1, 36)
NAMES_MAX: Final = 3  # in one message


def check_nodes(facts: ClusterFacts, group: Sequence[Member]) -> Iterator[Finding]:
    """Yield problems of the nodes that may take a Pod of the group."""
    if facts.nodes is None:
        return
    for member in group:
        selector = member.pod_spec.get("nodeSelector") or {}
        nodes = [node for node in facts.nodes if node.schedulable and selector.items() <= node.labels.items()]
        if not nodes:
            path = f"{member.pod_path}.nodeSelector"
            found = f"none of {len(facts.nodes)} nodes" + (f" with {selector}" if selector else "")
            yield Finding(
                "no-nodes", path, found, "a node that can be scheduled on", "add nodes, or correct the selector"
            )
            continue
        yield from _features(facts, member, nodes)
        yield from _bugs(member, nodes)


def _features(facts: ClusterFacts, member: Member, nodes: Sequence[Node]) -> Iterator[Finding]:
    """Yield nodes that the scheduler leaves out: a Pod with such rules needs the feature declared, from 1.36 on."""
    version = version_of(facts.version)
    if member.mode != "sidecar" or version is None or version < DECLARED_SINCE:
        return
    without = [node for node in nodes if FEATURE not in node.features]
    if without:
        rule = "node-features" if len(without) == len(nodes) else "node-features-some"
        fix = f"kubelet 1.36 with feature gate {FEATURE}, or use supervisor mode"
        found = f"{len(without)} of {len(nodes)} without it: {_names(without)}"
        yield Finding(rule, "nodes: status.declaredFeatures", found, FEATURE, fix)


def _bugs(member: Member, nodes: Sequence[Node]) -> Iterator[Finding]:
    for bug in BUGS:
        having = [node for node in nodes if (version := version_of(node.kubelet)) is not None and bug.is_in(version)]
        if having and bug.touches(member):
            path = f"nodes: {_names(having)}"
            yield Finding("kubelet-bug", path, f"{bug.issue}: {bug.what}", "kubelets without it", bug.fix)


def _names(nodes: Sequence[Node]) -> str:
    return names_text([f"{node.name} ({node.kubelet})" for node in nodes], NAMES_MAX)
