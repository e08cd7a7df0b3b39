"""Check the JobSet and its Jobs, names of annotations and unexpanded variables among them. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator
from difflib import get_close_matches
from typing import Any, Final

from inplace.cli.lint.agent import options_of
from inplace.cli.lint.stored import as_stored, finding_of
from inplace.common.injection.agent_pieces import DEFAULT_POLICY
from inplace.common.injection.finding import Finding, shown
from inplace.common.injection.pod_failure_policy import FAILURES, final_codes_by_rule
from inplace.common.injection.pod_roles import RUN, Container, Member, group_of, members
from inplace.common.injection.restart_rules import Ending, codes_that, spell
from inplace.common.jobset.settings import MEMBERS, ON_PODS, RESTART
from inplace.common.kube.resources import KubeObject
from inplace.common.protocol.errors import RemoteProtocolError
from inplace.common.wire import names as wire
from inplace.common.wire.in_place import failure_policy_of
from inplace.controller.plan.problems.report import known_problems
from inplace.controller.plan.problems.spec import bad_manifests

_OTHER_STRATEGIES: Final = (None, "Recreate", "BlockingRecreate")


def check_jobset(jobset: KubeObject) -> Iterator[Finding]:
    """Yield problems of the JobSet itself, under any strategy."""
    yield from _spec_problems(jobset)
    yield from _unreachable_rules(jobset)
    yield from _exclusive_placement(jobset)
    strategy = (failure_policy_of(jobset) or {}).get("restartStrategy")
    if strategy in _OTHER_STRATEGIES and any(member.agent is not None for member in group_of(jobset)):
        path, fix = "spec.failurePolicy.restartStrategy", "set it, or take the agents out of the template"
        yield Finding("not-in-place", path, shown(strategy), wire.IN_PLACE_RESTART, fix)


def check_group(jobset: KubeObject) -> Iterator[Finding]:
    """Yield reasons why the JobSet does not restart in place."""
    annotations = (jobset.get("metadata") or {}).get("annotations") or {}
    if wire.DISABLE in annotations:
        path, found = f'metadata.annotations["{wire.DISABLE}"]', shown(annotations[wire.DISABLE])
        yield Finding("not-in-place", path, found, "nothing", "remove it to restart in place")
    restarts = (failure_policy_of(jobset) or {}).get("maxRestarts")
    if not isinstance(restarts, int) or restarts < 1:
        is_annotated = wire.RESTART_IN_PLACE in annotations
        path = f'metadata.annotations["{wire.RESTART_IN_PLACE}"]' if is_annotated else "spec.failurePolicy.maxRestarts"
        fix = f"say how many restarts the group may have, such as {DEFAULT_POLICY['maxRestarts']}"
        yield Finding("max-restarts", path, shown(restarts), "at least 1", fix)
    group = group_of(jobset)
    yield from _rules_without_failures(jobset, group)
    yield from _startup_order(jobset, group)
    for member in group:
        yield from _pod_failure_policy(member)


def _rules(jobset: KubeObject) -> list[KubeObject]:
    rules = (failure_policy_of(jobset) or {}).get("rules") or []
    return [rule for rule in rules if isinstance(rule, dict)] if isinstance(rules, list) else []


def _spec_problems(jobset: KubeObject) -> Iterator[Finding]:
    """Let the controller's own code read the JobSet."""
    try:
        parsed = as_stored(jobset)
        said_below = set(bad_manifests(parsed))  # by check_differences
        problems = [problem for problem in known_problems(parsed) if problem not in said_below]
    except RemoteProtocolError as error:
        problems = [f"spec: expected a JobSet's form, saw {error}; correct it"]
    for problem in dict.fromkeys(problems):  # that of one annotation is each replicatedJob's
        yield finding_of("spec-problem", problem)


def _unreachable_rules(jobset: KubeObject) -> Iterator[Finding]:
    rules = _rules(jobset)
    conditions = ("onJobFailureReasons", "onJobFailureMessagePatterns", "targetReplicatedJobs")
    for index, rule in enumerate(rules[:-1]):
        if not any(rule.get(condition) for condition in conditions):
            path, name = f"spec.failurePolicy.rules[{index + 1}]", rule.get("name") or index
            found = f"a rule behind {name!r}, which matches every failure"
            yield Finding("unreachable-rule", path, found, "rules that can match", "put the general rule last")
            return


def _rules_without_failures(jobset: KubeObject, group: list[Member]) -> Iterator[Finding]:
    """Yield rules that no Job of the group can ever reach."""
    can_fail = {
        member.name
        for member in members(jobset)
        if member.has_opted_out
        or any(member.job_spec.get(field) is not None for field in ("podFailurePolicy", "activeDeadlineSeconds"))
    }
    for index, rule in enumerate(_rules(jobset)):
        targets = set(rule.get("targetReplicatedJobs") or [member.name for member in members(jobset)])
        if group and not targets & can_fail:
            path = f"spec.failurePolicy.rules[{index}]"
            fix = "fail Jobs by a podFailurePolicy or activeDeadlineSeconds in their template, or remove the rule"
            found = f"a rule for {', '.join(sorted(targets))}, whose Jobs never fail"
            yield Finding("unreachable-rule", path, found, "Jobs that can fail", fix)


def _startup_order(jobset: KubeObject, group: list[Member]) -> Iterator[Finding]:
    """Yield an order in which sidecars wait for each other."""
    sidecars = {member.name for member in group if member.place == "sidecar"}
    order = ((jobset.get("spec") or {}).get("startupPolicy") or {}).get("startupPolicyOrder")
    if order == "InOrder" and len(group) > 1 and sidecars:
        fix = "expect one uncounted restart for each step, start in any order, or use supervisor mode"
        yield Finding("startup-order", "spec.startupPolicy.startupPolicyOrder", "InOrder", "AnyOrder", fix)
    for member in group:
        for index, dependency in enumerate(member.raw.get("dependsOn") or ()):
            if dependency.get("status") == "Ready" and dependency.get("name") in sidecars:
                path = f"{member.path}.dependsOn[{index}]"
                found = f"{dependency['name']} Ready, which is in the group"
                fix = "expect one uncounted restart, depend on nothing in the group, or use supervisor mode"
                yield Finding("startup-order", path, found, "no order inside the group", fix)


def _exclusive_placement(jobset: KubeObject) -> Iterator[Finding]:
    """Yield annotations without effect: the strategy counts beside the topology only, and a topology is a label."""
    for path, given in _places(jobset):
        topology = given.get(wire.EXCLUSIVE_TOPOLOGY)
        if wire.NODE_SELECTOR_STRATEGY in given and not topology:
            where = f'{path}.annotations["{wire.NODE_SELECTOR_STRATEGY}"]'
            fix = f"add {wire.EXCLUSIVE_TOPOLOGY} at the same place"
            yield Finding("no-effect", where, "it alone", f"{wire.EXCLUSIVE_TOPOLOGY} beside it", fix)
        elif topology is not None and (not isinstance(topology, str) or not topology.strip()):
            where = f'{path}.annotations["{wire.EXCLUSIVE_TOPOLOGY}"]'
            fix = "name the label, such as topology.kubernetes.io/zone"
            yield Finding("no-effect", where, shown(topology), "the key of a node's label", fix)


def _pod_failure_policy(member: Member) -> Iterator[Finding]:
    """Yield exit codes that shall end the Job, but never reach it, because the Pod restarts in place."""
    unseen: dict[int, set[int]] = {}
    for worker in member.workers:
        in_place = _codes_in_place(member, worker)
        for position, codes in final_codes_by_rule(member.job_spec, worker.name).items():
            unseen.setdefault(position, set()).update(in_place.intersection(codes))
    for position, missed in sorted(unseen.items()):
        codes = sorted(missed)
        if codes:
            path = f"{member.job_path}.podFailurePolicy.rules[{position}].onExitCodes.values"
            fix = (
                "leave these codes out of the worker's restartPolicyRules (NotIn [0, code, ...], or In with the others)"
            )
            if member.place == "supervisor":
                fix = f"add --fail-on {spell(codes, separator=',')} to inplace-agent run"
            found = f"exit codes {spell(codes)}, which restart the Pod in place"
            yield Finding("unreachable-rule", path, found, "codes that fail the Pod", fix)


def _codes_in_place(member: Member, worker: Container) -> set[int]:
    """Return the exit codes after which a worker starts again in its Pod."""
    if member.place == "sidecar":
        return set(codes_that(worker.raw, Ending.ALL_RESTART))
    options = options_of(worker, RUN) if worker is member.supervisor else None
    return set(FAILURES) - options.final_codes if options is not None else set()


_PLACEHOLDER: Final = re.compile(r"\$\{[^}]*\}|\$\([^)]*\)|\$[A-Za-z_]\w*|\{\{.*?\}\}|<[A-Za-z][^<>]*>")
_OWN_MEANING: Final = frozenset(
    ("command", "args", "value", "annotations", "subPathExpr", "exec", "workingDir", "onJobFailureMessagePatterns")
)


def check_placeholders(jobset: KubeObject) -> Iterator[Finding]:
    """Yield each place with a variable."""
    for path, text in _texts(jobset, ""):
        if found := _PLACEHOLDER.search(text):
            command = "helm template CHART" if found[0].startswith("{{") else "envsubst < FILE"
            fix = f"fill the template in first, as with {command} | inplace lint -f -; the rest is judged then"
            if found[0].startswith("<"):
                fix = "write the value in its place; the rest is judged then"
            yield Finding("unexpanded-variable", path, f"{found[0]} in {text!r:.80}", "its value", fix)


def _texts(part: Any, path: str) -> Iterator[tuple[str, str]]:
    """Yield all texts with their paths; items of a list by their names, as all our paths have them."""
    if isinstance(part, str):
        yield path, part
    elif isinstance(part, dict):
        for key, value in part.items():
            if key not in _OWN_MEANING:
                yield f"the key in {path}", str(key)
                yield from _texts(value, f"{path}.{key}" if path else str(key))
    elif isinstance(part, list):
        for index, item in enumerate(part):
            name = item.get("name") if isinstance(item, dict) else None
            label = f'name="{name}"' if isinstance(name, str) and name else str(index)
            yield from _texts(item, f"{path}[{label}]")


PREFIXES: Final = ("jobset.sigs.k8s.io/", "alpha.jobset.sigs.k8s.io/", "inplace.dev/")
_PRIORITY: Final = "jobset.sigs.k8s.io/priority"  # upstream's pkg/constants; it is on Pods
KNOWN: Final = frozenset(
    {text for text in vars(wire).values() if isinstance(text, str) and text.startswith(PREFIXES)} | {_PRIORITY}
)
_BY_END: Final = {name.partition("/")[2]: name for name in sorted(KNOWN)}
_MOVED: Final = {name: RESTART.named(part) for part, name in ON_PODS.items()}  # the controller writes them on Pods
LIKENESS: Final = 0.9  # of a whole name under a foreign prefix: one or two letters differ
NEAREST: Final = 0.6  # of what follows our prefixes, difflib's own measure; such a name is misspelt for certain


def check_annotations(jobset: KubeObject) -> Iterator[Finding]:
    """Yield names under the prefixes of JobSet and of ours, or close to one of them, that nothing reads."""
    for path, annotated in (*_places(jobset), *_pods(jobset)):
        for name in annotated:
            nearest = _MOVED.get(str(name)) if path == "metadata" else None
            nearest = nearest or _nearest(str(name))
            if nearest is not None:
                needed, fix = nearest or "a name of docs/manifests.md", "correct the name, or remove the annotation"
                yield Finding(
                    "no-effect", f'{path}.annotations["{name}"]', f"the name {name}, which nothing reads", needed, fix
                )


def check_sizes(jobset: KubeObject) -> Iterator[Finding]:
    """Yield parts of inplace.dev/members that count only where a group may get smaller."""
    for path, annotated in _places(jobset):
        if wire.MEMBERS not in annotated:
            continue
        try:
            given = MEMBERS.read(annotated)
        except RemoteProtocolError:
            continue  # has a finding of its own
        idle = [part for part in ("step", "wait") if part in given]
        if idle and given.get("min", given.get("max")) == given.get("max"):
            where, found = f'{path}.annotations["{wire.MEMBERS}"]', f"{' and '.join(idle)}, and no min below max"
            yield Finding("no-effect", where, found, "min beside them", f"add min, or remove {' and '.join(idle)}")


def _nearest(name: str) -> str | None:
    """Return the name that is meant, or "" where none is near; None where the name is no mistake."""
    if name in KNOWN:
        return None
    if not name.startswith(PREFIXES):
        return next(iter(get_close_matches(name, sorted(KNOWN), n=1, cutoff=LIKENESS)), None)
    near = get_close_matches(name.partition("/")[2], list(_BY_END), n=1, cutoff=NEAREST)
    return _BY_END[near[0]] if near else ""


def _places(jobset: KubeObject) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the annotations of the JobSet and of each Job, with their path."""
    yield "metadata", (jobset.get("metadata") or {}).get("annotations") or {}
    for member in members(jobset):
        metadata = member.template.get("metadata") or {}
        yield f"{member.path}.template.metadata", metadata.get("annotations") or {}


def _pods(jobset: KubeObject) -> Iterator[tuple[str, dict[str, Any]]]:
    for member in members(jobset):
        metadata = (member.job_spec.get("template") or {}).get("metadata") or {}
        yield f"{member.job_path}.template.metadata", metadata.get("annotations") or {}
