"""
Evaluate x-kubernetes-validations with the common-expression-language package.

Guarantees: a rule that the package cannot parse or that needs a Kubernetes function library it lacks is reported once
as a warning and does not refuse objects; every other rule decides as on the real server. Costs are not limited.
Source: k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from functools import cache, lru_cache
from typing import Any, Final

import cel

from inplace.simulator.apiserver.cel_programs import UNKNOWN_FUNCTION, CelVariables, compiled, unescaped, warn_once
from inplace.simulator.apiserver.schema import Schema
from inplace.simulator.apiserver.status import StatusCause, show

WHOLE = "<nil>"  # how Go prints the path of a whole object
_USES_OLD = re.compile(r"\boldSelf\b")
_REASONS = ("FieldValueInvalid", "FieldValueForbidden", "FieldValueRequired", "FieldValueDuplicate")


def check_rules(value: Any, old: Any, schema: Schema, path: str, causes: list[StatusCause]) -> None:
    """Append a cause for each broken rule at and below `path`.

    `old` is the correlated value before an update, None on create; unchanged values are not checked again.
    """
    if not schema.has_rules or (old is not None and old == value):
        return
    scope_of = _scopes(value, old, schema.rules)
    for rule in schema.rules:
        _check(rule, value, old, scope_of, path, causes)
    if isinstance(value, dict):
        before = old if isinstance(old, dict) else {}
        for key, item in value.items():
            child = schema.child(key)
            if child is not None:
                check_rules(item, before.get(key), child, f"{path}.{key}" if path else key, causes)
    elif isinstance(value, list) and schema.items is not None:
        for index, item in enumerate(value):
            check_rules(item, _correlated(item, old, schema), schema.items, f"{path}[{index}]", causes)


def _correlated(item: Any, old: Any, schema: Schema) -> Any:
    """Return the list item of the old object with the same keys; atomic lists and sets do not correlate."""
    if schema.list_type != "map" or not isinstance(old, list) or not isinstance(item, dict):
        return None
    for candidate in old:
        if all(candidate.get(key) == item.get(key) for key in schema.list_keys):
            return candidate
    return None


def _scopes(value: Any, old: Any, rules: Sequence[Mapping[str, Any]]) -> Callable[[bool], CelVariables]:
    """Return a function that gives a rule its variables; plain rules share one set, optionalOldSelf rules another."""
    fields = fields_of(tuple(rule[key] for rule in rules for key in ("rule", "messageExpression") if key in rule))
    value, old = only(value, fields), only(old, fields)

    @cache
    def scope_of(is_optional: bool) -> CelVariables:
        if not is_optional:
            return CelVariables({"self": value, "oldSelf": old})
        return CelVariables(
            {"self": value, "oldSelf": cel.OptionalValue.none() if old is None else cel.OptionalValue.of(old)}
        )

    return scope_of


def _check(
    rule: dict[str, Any],
    value: Any,
    old: Any,
    scope_of: Callable[[bool], CelVariables],
    path: str,
    causes: list[StatusCause],
) -> None:
    expression, is_optional = rule["rule"], bool(rule.get("optionalOldSelf"))
    if old is None and not is_optional and _USES_OLD.search(expression):
        return  # without an old value a transition rule does not apply
    program = compiled(expression)
    if program is None:
        return
    scope = scope_of(is_optional)
    try:
        holds = scope.execute(program)
    except (RuntimeError, TypeError, ValueError, KeyError) as error:
        if UNKNOWN_FUNCTION in str(error):
            warn_once(expression, str(error))
            return
        message = f"Invalid value: {_shown(value)}rule evaluation error: {error}"
        causes.append(StatusCause(path or WHOLE, message))
        return
    if holds is not True:
        causes.append(_broken(rule, value, path, scope))


def _broken(rule: dict[str, Any], value: Any, path: str, scope: CelVariables) -> StatusCause:
    message = rule.get("message") or f"failed rule: {rule['rule']}"
    if rule.get("messageExpression"):
        message = scope.text_of(rule["messageExpression"]) or message
    field = (path + str(rule.get("fieldPath", ""))).lstrip(".") or WHOLE
    reason = rule.get("reason", "FieldValueInvalid")
    return StatusCause(field, f"Invalid value: {_shown(value)}{message}", reason if reason in _REASONS else _REASONS[0])


def _shown(value: Any) -> str:
    """Return a scalar as the real server prints it before a rule's message; objects and lists are left out."""
    return "" if isinstance(value, dict | list) else f"{show(value)}: "


Fields = Mapping[str, "Fields | None"]
"""The fields by name, each with those below it; None: the whole value."""

_RULES_MAX: Final = 2048
# Whatever follows these names in another form, such as an index or a method, is a look at the whole value so far.
_LOOK: Final = re.compile(r"\b(?:self|oldSelf)\b(?:(\.hasValue\(\))|(?:\.value\(\))?((?:\.\w+\b(?!\())*))")


@lru_cache(maxsize=_RULES_MAX)
def fields_of(expressions: tuple[str, ...]) -> Fields | None:
    """Return the fields that expressions look at through `self` and `oldSelf`; a field too many does no harm.

    The rest is not converted for CEL: that takes ten times as long as a JobSet's rules on it.
    """
    looks = [look for expression in expressions for look in _LOOK.finditer(unescaped(expression))]
    return _tree([look[2].split(".")[1:] for look in looks if not look[1]])


def _tree(paths: list[list[str]]) -> Fields | None:
    if [] in paths:
        return None
    return {name: _tree([path[1:] for path in paths if path[0] == name]) for name in {path[0] for path in paths}}


def only(value: Any, fields: Fields | None) -> Any:
    """Return a value with these fields alone."""
    if fields is None or not isinstance(value, dict):
        return value
    return {name: only(value[name], below) for name, below in fields.items() if name in value}
