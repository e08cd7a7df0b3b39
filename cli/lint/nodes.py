"""
Check a manifest against the nodes: do kubelets restart all containers, and which of their bugs affect it. Pure.

Versions of bugs are those known in November 2026; a fix whose release is not known counts as not released.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from inplace.cli.lint.facts import ClusterFacts, Node
from inplace.cli.terminal.moments import names_text
from inplace.common.agent_command import GUARD
from inplace.common.injection.finding import Finding
from inplace.common.injection.pod_roles import Member
from inplace.common.injection.restart_rules import Version, version_of


@dataclass(frozen=True, slots=True)
class KubeletBug:
    """One bug.

    Args:
        issue: of kubernetes/kubernetes.
        what: happens.
        first: minor version that has it.
        last: minor version that has it, in some patch release at least.
        touches: says whether it can happen to this manifest.
        fix: what to do.
    """

    issue: str
    what: str
    first: Version
    last: Version
    touches: Callable[[Member], bool]
    fix: str

    def is_in(self, version: Version) -> bool:
        """Say whether kubelets of this version have it."""
        return self.first <= version <= self.last


def _has_rules(member: Member) -> bool:
    return member.place == "sidecar" and member.has_rules


def _relies_on_the_probe_alone(member: Member) -> bool:
    return member.place == "sidecar" and not all(worker.calls(GUARD) for worker in member.workers)


BUGS: Final = (
    KubeletBug(
        issue="kubernetes #141155",  # fix #141342; cherry-picks #142041, #142042, #142043 were open in September 2026
        what="a replaced sidecar may be taken for started before its probe ran, which lifts its barrier too early",
        first=(1, 35),
        last=(1, 37),
        touches=_relies_on_the_probe_alone,
        fix="start the worker below inplace-agent guard, which inplace inject adds",
    ),
    KubeletBug(
        issue="kubernetes #136966",
        what="after RestartAllContainers a Pod may wait up to 60 s for its next start",
        first=(1, 35),
        last=(1, 35),
        touches=_has_rules,
        fix="upgrade the nodes to 1.36, or use `inplace inject --restart-rule off`",
    ),
    KubeletBug(
        issue="kubernetes #136910",  # fix #137146, cherry-pick #137885
        what="after a restart of kubelet, containers beside a sidecar with a startup probe never start again",
        first=(1, 35),
        last=(1, 35),
        touches=_has_rules,
        fix="upgrade the nodes to 1.36, or to a 1.35 with #137885",
    ),
    KubeletBug(
        issue="kubernetes #136963",
        what="RestartAllContainers deletes the logs of the containers that it restarts",
        first=(1, 35),
        last=(1, 35),
        touches=_has_rules,
        fix="upgrade the nodes to 1.36, or collect logs as they are written",
    ),
)

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
    if not _has_rules(member) or version is None or version < DECLARED_SINCE:
        return
    without = [node for node in nodes if FEATURE not in node.features]
    if without:
        rule = "node-features" if len(without) == len(nodes) else "node-features-some"
        fix = f"kubelet 1.36 with feature gate {FEATURE}, or `inplace inject --restart-rule off`"
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
