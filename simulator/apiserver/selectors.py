"""
Parse label and field selectors into predicates, and match the selectors that objects hold.

Source: k8s.io/apimachinery/pkg/labels (Parse) and /fields (ParseSelector).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from inplace.common.kube.resources import KubeObject
from inplace.simulator.apiserver.jsonpath import at_path
from inplace.simulator.apiserver.status import bad_request

Predicate = Callable[[KubeObject], bool]

LABEL_OPERATORS = ("In", "NotIn", "Exists", "DoesNotExist")
_PARSED_MAX = 1024  # distinct selector strings remembered; clients use a handful
_REQUIREMENT = re.compile(
    r"\s*(?:(?P<absent>!)\s*(?P<akey>[^\s=!<>,()]+)"
    r"|(?P<key>[^\s=!<>,()]+)\s*(?:(?P<op>==|=|!=)\s*(?P<value>[^\s,()]*)"
    r"|\s(?P<set>in|notin)\s*\((?P<values>[^)]*)\)"
    r"|(?P<cmp>[<>])\s*(?P<number>\d+))?)\s*(?:,|$)"
)


@lru_cache(maxsize=_PARSED_MAX)
def label_predicate(selector: str) -> Predicate | None:
    """Return a predicate on objects for a label selector; None accepts everything."""
    if not selector.strip():
        return None
    tests = [_label_test(match) for match in _requirements(selector)]

    def matches(obj: KubeObject) -> bool:
        labels = obj["metadata"].get("labels") or {}
        return all(test(labels) for test in tests)

    return matches


def _requirements(selector: str) -> list[re.Match[str]]:
    matches = []
    position = 0
    while position < len(selector):
        match = _REQUIREMENT.match(selector, position)
        if match is None or match.end() == position:
            raise bad_request(f"unable to parse requirement: found '{selector[position:]}'")
        matches.append(match)
        position = match.end()
    return matches


def _label_test(match: re.Match[str]) -> Callable[[dict[str, str]], bool]:
    if match["absent"]:
        key = match["akey"]
        return lambda labels: key not in labels
    key = match["key"]
    if match["op"]:
        value = match["value"]
        if match["op"] == "!=":
            return lambda labels: labels.get(key) != value
        return lambda labels: labels.get(key) == value
    if match["set"]:
        values = frozenset(part.strip() for part in match["values"].split(","))
        if match["set"] == "notin":
            return lambda labels: labels.get(key) not in values
        return lambda labels: labels.get(key) in values
    if match["cmp"]:
        return _numeric_test(key, match["cmp"], int(match["number"]))
    return lambda labels: key in labels


def _numeric_test(key: str, operator: str, bound: int) -> Callable[[dict[str, str]], bool]:
    def test(labels: dict[str, str]) -> bool:
        text = labels.get(key, "")
        if not text.lstrip("-").isdigit():
            return False
        return int(text) > bound if operator == ">" else int(text) < bound

    return test


def selects(selector: Mapping[str, Any], labels: Mapping[str, str]) -> bool:
    """Say whether a LabelSelector, as objects hold it, matches labels."""
    return (selector.get("matchLabels") or {}).items() <= labels.items() and all(
        holds(one, labels) for one in selector.get("matchExpressions") or ()
    )


def holds(requirement: Mapping[str, Any], labels: Mapping[str, str]) -> bool:
    """Say whether labels satisfy a requirement of a LabelSelector or of a node selector's term."""
    value, values = labels.get(requirement.get("key") or ""), requirement.get("values") or []
    match requirement["operator"]:
        case "In":
            return value is not None and value in values
        case "NotIn":
            return value is None or value not in values
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
        case "Gt" | "Lt" as operator:
            if value is None or not value.lstrip("-").isdigit():
                return False
            return int(value) > int(values[0]) if operator == "Gt" else int(value) < int(values[0])
    return False


@dataclass(frozen=True, slots=True)
class FieldSelector:
    """A parsed field selector: the one name it asks for, if any, and the predicate for the rest."""

    name: str | None
    predicate: Predicate | None


@lru_cache(maxsize=_PARSED_MAX)
def field_selector(selector: str, supported: tuple[str, ...]) -> FieldSelector:
    """Parse a field selector; `supported` are the kind's labels beside metadata.name and metadata.namespace."""
    name: str | None = None
    tests: list[Predicate] = []
    for term in (part for part in selector.split(",") if part):
        label, operator, value = _split_term(term)
        if label not in supported and label not in ("metadata.name", "metadata.namespace"):
            raise bad_request(f"field label not supported: {label}")
        if operator != "!=" and label == "metadata.name":
            name = value
        tests.append(_field_test(label, operator, value))
    return FieldSelector(name, all_of(tests))


def _split_term(term: str) -> tuple[str, str, str]:
    for operator in ("!=", "==", "="):
        label, found, value = term.partition(operator)
        if found:
            return label, operator, value
    raise bad_request(f"invalid selector: '{term}'; can't understand '{term}'")


def _field_test(label: str, operator: str, value: str) -> Predicate:
    path = tuple(label.split("."))
    wanted = operator != "!="

    def test(obj: KubeObject) -> bool:
        return (_text(at_path(obj, path)) == value) == wanted

    return test


def _text(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


def all_of(tests: Iterable[Predicate]) -> Predicate | None:
    """Return a predicate that holds where all of these hold; None accepts everything."""
    parts = tuple(tests)
    if not parts:
        return None
    if len(parts) == 1:
        return parts[0]
    return lambda obj: all(part(obj) for part in parts)
