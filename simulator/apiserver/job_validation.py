"""
Say which rules a Job's spec breaks; those of its Pods are in pod_validation.py.

Source: k8s.io/kubernetes/pkg/apis/batch/validation/validation.go (1.37.2), the function that each rule names.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from inplace.simulator.apiserver import formats
from inplace.simulator.apiserver.metadata import LABEL_CHARACTERS_MAX, label_causes
from inplace.simulator.apiserver.pod_scheduling import selector_requirement
from inplace.simulator.apiserver.selectors import LABEL_OPERATORS, selects
from inplace.simulator.apiserver.status import StatusCause, bad_value, not_supported, required, too_many

Spec = Mapping[str, Any]
INDEXES_MAX: Final = 100_000
INDEXES_MANY_MAX: Final = 10_000
SUCCESS_RULES_MAX: Final = 20
_COUNTS: Final = (
    *("parallelism", "completions", "activeDeadlineSeconds", "backoffLimit", "ttlSecondsAfterFinished"),
    *("backoffLimitPerIndex", "maxFailedIndexes"),
)
_HTTP_PATH: Final = re.compile(r"[A-Za-z0-9/\-._~%!$&'()*+,;=:]+")


def count_causes(spec: Spec) -> Iterator[StatusCause]:
    """Return the rules that numbers and modes break. Source: validateJobSpec."""
    for field in _COUNTS:
        if (value := spec.get(field)) is not None and value < 0:
            yield bad_value(f"spec.{field}", value, "must be greater than or equal to 0")
    mode = spec.get("completionMode")
    if mode not in ("Indexed", "NonIndexed"):
        yield not_supported("spec.completionMode", mode, ("NonIndexed", "Indexed"))
    if spec.get("maxFailedIndexes") is not None and spec.get("backoffLimitPerIndex") is None:
        yield required("spec.backoffLimitPerIndex", "Required value: when maxFailedIndexes is specified")
    if mode == "Indexed":
        yield from _indexed_causes(spec)
    elif mode == "NonIndexed":
        for field in ("backoffLimitPerIndex", "maxFailedIndexes"):
            if spec.get(field) is not None:
                yield bad_value(f"spec.{field}", spec[field], "requires indexed completion mode")


def _indexed_causes(spec: Spec) -> Iterator[StatusCause]:
    completions, failed = spec.get("completions"), spec.get("maxFailedIndexes")
    mode = "when completion mode is Indexed"
    if completions is None:
        yield required("spec.completions", f"Required value: {mode}")
    if spec["parallelism"] > INDEXES_MAX:
        why = f"must be less than or equal to {INDEXES_MAX} {mode}"
        yield bad_value("spec.parallelism", spec["parallelism"], why)
    if failed is not None and completions is not None and failed > completions:
        yield bad_value("spec.maxFailedIndexes", failed, "must be less than or equal to completions")
    if failed is not None and failed > INDEXES_MAX:
        yield bad_value("spec.maxFailedIndexes", failed, f"must be less than or equal to {INDEXES_MAX}")
    if (completions or 0) <= INDEXES_MAX or spec.get("backoffLimitPerIndex") is None:
        return
    if failed is None:
        why = f"must be specified when completions is above {INDEXES_MAX}"
        yield required("spec.maxFailedIndexes", f"Required value: {why}")
    for field in ("parallelism", "maxFailedIndexes"):
        if (spec.get(field) or 0) > INDEXES_MANY_MAX:
            when = f"when completions are above {INDEXES_MAX} and used with backoff limit per index"
            yield bad_value(f"spec.{field}", spec[field], f"must be less than or equal to {INDEXES_MANY_MAX} {when}")


def name_causes(name: str, spec: Spec) -> Iterator[StatusCause]:
    """Refuse an Indexed Job whose Pods' hostnames, <job>-<index>, are no DNS labels.

    Source: validateNameAllowsCompletions.
    """
    last = f"{name}-{max((spec.get('completions') or 1) - 1, 0)}"
    if spec["completionMode"] == "Indexed" and (len(last) > LABEL_CHARACTERS_MAX or formats.dns_label(last)):
        yield bad_value("metadata.name", name, f"will not able to create pod with invalid DNS label: {last}")


def spec_causes(spec: Spec) -> Iterator[StatusCause]:
    """Return the rules that the manager and the policies break; podFailurePolicy has a module of its own."""
    if (manager := spec.get("managedBy")) is not None:
        yield from _manager_causes(manager, "spec.managedBy")
    policy = spec["podReplacementPolicy"]
    allowed = ("Failed",) if spec.get("podFailurePolicy") is not None else ("Failed", "TerminatingOrFailed")
    if policy not in allowed:
        yield not_supported("spec.podReplacementPolicy", policy, allowed)
    if (success := spec.get("successPolicy")) is None:
        return
    if spec["completionMode"] != "Indexed":
        yield bad_value("spec.successPolicy", success, "requires indexed completion mode")
    elif spec.get("completions") is not None:
        yield from _success_causes(success.get("rules") or [], spec["completions"], "spec.successPolicy.rules")


def _manager_causes(manager: str, path: str) -> Iterator[StatusCause]:
    """Source: IsDomainPrefixedPath."""
    host, _, rest = manager.partition("/")
    if not manager:
        yield required(path)
    elif not host or not rest:
        yield bad_value(path, manager, 'must be a domain-prefixed path (such as "acme.io/foo")')
    else:
        yield from (bad_value(path, host, why) for why in formats.subdomain(host))
        if not _HTTP_PATH.fullmatch(rest):
            yield bad_value(path, rest, f"Invalid path (regex used for validation is '{_HTTP_PATH.pattern}')")
    if len(manager) > LABEL_CHARACTERS_MAX:
        yield StatusCause(path, f"Too long: may not be more than {LABEL_CHARACTERS_MAX} bytes", "FieldValueTooLong")


def _success_causes(rules: list[Spec], completions: int, path: str) -> Iterator[StatusCause]:
    """Source: validateSuccessPolicy, validateSuccessPolicyRule."""
    if not rules:
        why = "at least one rules must be specified when the successPolicy is specified"
        yield required(path, f"Required value: {why}")
    if len(rules) > SUCCESS_RULES_MAX:
        yield too_many(path, len(rules), SUCCESS_RULES_MAX)
    for at, rule in enumerate(rules):
        here, count, indexes = f"{path}[{at}]", rule.get("succeededCount"), rule.get("succeededIndexes")
        if count is None and indexes is None:
            why = "at least one of succeededCount or succeededIndexes must be specified"
            yield required(here, f"Required value: {why}")
        named, why = _indexes(indexes or "", completions)
        if why:
            yield bad_value(f"{here}.succeededIndexes", indexes, f"error parsing succeededIndexes: {why}")
        if count is None:
            continue
        if count < 0:
            yield bad_value(f"{here}.succeededCount", count, "must be greater than or equal to 0")
        bounds = [(completions, "(the number of specified completions)")]
        if indexes is not None:
            bounds.append((named, "(the number of indexes in the specified succeededIndexes field)"))
        for bound, of in bounds:
            if count > bound:
                yield bad_value(f"{here}.succeededCount", count, f"must be less than or equal to {bound} {of}")


def _indexes(text: str, completions: int) -> tuple[int, str]:
    """Return how many indexes a text such as 1,3-5 names, or 0 and why it names none. Source: validateIndexesFormat."""
    total, last = 0, -1
    for part in text.split(",") if text else ():
        ends = part.split("-")
        if len(ends) > 2:
            return (
                0,
                f'the fragment "{part}" violates the requirement that an index interval can have at most two parts',
            )
        for end in ends:
            if not re.fullmatch(r"\+?[0-9]+", end):
                return 0, f'cannot convert string to integer for index: "{end}"'
            if int(end) >= completions:
                return 0, f'too large index: "{end}"'
        first, final = int(ends[0]), int(ends[-1])
        if first <= last or (len(ends) == 2 and first >= final):
            return 0, f"non-increasing order, previous: {max(last, first)}, current: {final}"
        total, last = total + final - first + 1, final
    return total, ""


def selector_causes(spec: Spec, generated: Mapping[str, str]) -> Iterator[StatusCause]:
    """Return the rules that the selector and the labels of the template break; `generated` are this Job's own labels.

    Source: validateGeneratedSelector, ValidateJobSpec.
    """
    selector, labels = spec.get("selector"), (spec["template"].get("metadata") or {}).get("labels") or {}
    if not spec["manualSelector"]:
        shown = dict(sorted(labels.items()))  # as Go prints a map
        for key, value in generated.items():
            if labels.get(key) != value:
                yield bad_value(f"spec.template.metadata.labels[{key}]", shown, f"must be '{value}'")
        if selector is not None and not _selects(selector, generated):
            yield bad_value("spec.selector", selector, "`selector` not auto-generated")
    if selector is None:
        yield required("spec.selector")
        return
    yield from label_causes(selector.get("matchLabels"), "spec.selector.matchLabels")
    for at, one in enumerate(selector.get("matchExpressions") or ()):
        yield from selector_requirement(one, f"spec.selector.matchExpressions[{at}]")
    if not _selects(selector, labels):
        yield bad_value("spec.template.metadata.labels", labels, "`selector` does not match template `labels`")


def _selects(selector: Spec, labels: Mapping[str, str]) -> bool:
    """Say whether a selector matches labels; an operator that the API does not know has a cause of its own."""
    judged = [one for one in selector.get("matchExpressions") or () if one.get("operator") in LABEL_OPERATORS]
    return selects({**selector, "matchExpressions": judged}, labels)
