"""
The rules of a Pod's scheduling: tolerations, selectors, affinity and spreading.

Source: k8s.io/kubernetes/pkg/apis/core/validation/validation.go (1.37.2), the function that each rule names;
k8s.io/apimachinery/pkg/apis/meta/v1/validation/validation.go.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from inplace.simulator.apiserver import formats
from inplace.simulator.apiserver.status import StatusCause, bad_value, forbidden_field, not_supported, required

Part = dict[str, Any]


def toleration(one: Part, path: str) -> Iterator[StatusCause]:
    """Source: ValidateTolerations."""
    key, operator, value, effect = (one.get(name) or "" for name in ("key", "operator", "value", "effect"))
    yield from (bad_value(f"{path}.key", key, why) for why in (formats.label_key(key) if key else ()))
    if not key and operator != "Exists":
        why = 'operator must be Exists when `key` is empty, which means "match all values and all keys"'
        yield bad_value(f"{path}.operator", operator, why)
    if one.get("tolerationSeconds") is not None and effect != "NoExecute":
        yield bad_value(f"{path}.effect", effect, "effect must be 'NoExecute' when `tolerationSeconds` is set")
    if operator in ("Equal", ""):
        yield from (bad_value(f"{path}.operator", value, why) for why in formats.label_value(value))
    elif operator == "Exists":
        if value:
            yield bad_value(f"{path}.operator", value, "value must be empty when `operator` is 'Exists'")
    else:  # Lt and Gt are behind a gate that is off
        allowed = ("Equal", "Exists", "Lt", "Gt") if operator in ("Lt", "Gt") else ("Equal", "Exists")
        yield not_supported(f"{path}.operator", operator, allowed)
    if effect and effect not in (effects := ("NoSchedule", "PreferNoSchedule", "NoExecute")):
        yield not_supported(f"{path}.effect", effect, effects)


def _operator(one: Part, path: str, numeric: tuple[str, ...] = ()) -> Iterator[StatusCause]:
    operator, values = one.get("operator") or "", one.get("values") or []
    if operator in ("In", "NotIn"):
        if not values:
            why = "Required value: must be specified when `operator` is 'In' or 'NotIn'"
            yield required(f"{path}.values", why)
    elif operator in ("Exists", "DoesNotExist"):
        if values:
            yield forbidden_field(
                f"{path}.values", "may not be specified when `operator` is 'Exists' or 'DoesNotExist'"
            )
    elif operator in numeric:
        if len(values) != 1:
            why = "Required value: must be specified single value when `operator` is 'Lt' or 'Gt'"
            yield required(f"{path}.values", why)
    else:
        yield bad_value(f"{path}.operator", operator, "not a valid selector operator")


def node_selector(selector: Part, path: str) -> Iterator[StatusCause]:
    """Check the values of labels; those of a preference are free. Source: ValidateNodeSelectorRequirement."""
    for at, term in enumerate(selector.get("nodeSelectorTerms") or ()):
        for index, one in enumerate(term.get("matchExpressions") or ()):
            here = f"{path}.nodeSelectorTerms[{at}].matchExpressions[{index}].values"
            for place, value in enumerate(one.get("values") or ()):
                yield from (bad_value(f"{here}[{place}]", value, why) for why in formats.label_value(value))


def node_term(term: Part, path: str) -> Iterator[StatusCause]:
    """Source: ValidateNodeSelectorTerm."""
    for at, one in enumerate(term.get("matchExpressions") or ()):
        here, key = f"{path}.matchExpressions[{at}]", one.get("key") or ""
        yield from _operator(one, here, ("Gt", "Lt"))
        yield from (bad_value(f"{here}.key", key, why) for why in formats.label_key(key))
    for at, one in enumerate(term.get("matchFields") or ()):
        here, operator, values = f"{path}.matchFields[{at}]", one.get("operator") or "", one.get("values") or []
        if operator not in ("In", "NotIn"):
            yield bad_value(f"{here}.operator", operator, "not a valid selector operator")
        elif len(values) != 1:
            why = "must be only one value when `operator` is 'In' or 'NotIn' for node field selector"
            yield required(f"{here}.values", f"Required value: {why}")
        if one.get("key") != "metadata.name":
            yield bad_value(f"{here}.key", one.get("key") or "", "not a valid field selector key")
            continue
        for place, value in enumerate(values):
            yield from (bad_value(f"{here}.values[{place}]", value, why) for why in formats.subdomain(value))


def _label_keys(term: Part, path: str) -> Iterator[StatusCause]:
    """Source: ValidateMatchLabelKeysAndMismatchLabelKeys."""
    selector = term.get("labelSelector")
    for field in ("matchLabelKeys", "mismatchLabelKeys"):
        keys = term.get(field) or []
        if keys and selector is None:
            yield forbidden_field(f"{path}.{field}", "must not be specified when labelSelector is not set")
            continue
        for at, key in enumerate(keys):
            yield from (bad_value(f"{path}.{field}[{at}]", key, why) for why in formats.label_key(key))
    matched = term.get("matchLabelKeys") or []
    seen = set((selector or {}).get("matchLabels") or ())
    for one in (selector or {}).get("matchExpressions") or ():
        if (key := one.get("key") or "") in matched and key in seen:
            yield bad_value(f"{path}[{matched.index(key)}]", key, "exists in both matchLabelKeys and labelSelector")
        seen.add(key)
    for at, key in enumerate(matched):
        if key in (term.get("mismatchLabelKeys") or ()):
            why = "exists in both matchLabelKeys and mismatchLabelKeys"
            yield bad_value(f"{path}.matchLabelKeys[{at}]", key, why)


def affinity_term(term: Part, path: str) -> Iterator[StatusCause]:
    """Source: validatePodAffinityTerm."""
    for name in term.get("namespaces") or ():
        yield from (bad_value(f"{path}.namespace", name, why) for why in formats.dns_label(name))
    yield from _label_keys(term, path)


def spread(one: Part, path: str) -> Iterator[StatusCause]:
    """Source: validateTopologySpreadConstraints, validateMinDomains."""
    action = one.get("whenUnsatisfiable") or ""
    if one.get("minDomains") is not None and action != "DoNotSchedule":
        why = f"can only use minDomains if whenUnsatisfiable=DoNotSchedule, not {action}"
        yield bad_value(f"{path}.minDomains", one["minDomains"], why)
    yield from _label_keys(one, path)


def selector_requirement(one: Part, path: str) -> Iterator[StatusCause]:
    """Source: ValidateLabelSelectorRequirement."""
    yield from _operator(one, path)
