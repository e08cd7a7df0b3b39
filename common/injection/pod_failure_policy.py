"""
Tell which exit codes of a container end its Job by the Job's podFailurePolicy. Pure.

The first rule that matches decides. FailJob and FailIndex end something, so the Pod has to fail for them. Ignore and
Count keep the Job going, which a restart in place does as well. Rules about Pod conditions match no exit code.

Source: k8s.io/kubernetes pkg/controller/job/pod_failure_policy.go.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

FAILURES: Final = range(1, 256)  # code 0 matches no rule
ENDS_THE_JOB: Final = ("FailJob", "FailIndex")


def final_codes(job_spec: Mapping[str, Any], container: str) -> list[int]:
    """Return the exit codes of a container that have to fail the Pod, for the policy to act on them."""
    return sorted(code for codes in final_codes_by_rule(job_spec, container).values() for code in codes)


def final_codes_by_rule(job_spec: Mapping[str, Any], container: str) -> dict[int, list[int]]:
    """Return the same by the position of the rule that decides on them."""
    rules = list(_rules(job_spec))
    found: dict[int, list[int]] = {}
    for code in FAILURES:
        decides = next(((place, rule) for place, rule in rules if _matches(rule, container, code)), None)
        if decides is not None and decides[1].get("action") in ENDS_THE_JOB:
            found.setdefault(decides[0], []).append(code)
    return found


def fails_indexes(job_spec: Mapping[str, Any]) -> bool:
    """Say whether some rule makes an index fail for good."""
    return any(rule.get("action") == "FailIndex" for _, rule in _all_rules(job_spec))


def _rules(job_spec: Mapping[str, Any]) -> Iterator[tuple[int, Mapping[str, Any]]]:
    """Yield the rules about exit codes with their positions."""
    for place, rule in _all_rules(job_spec):
        if isinstance(rule.get("onExitCodes"), Mapping):
            yield place, rule


def _all_rules(job_spec: Mapping[str, Any]) -> Iterator[tuple[int, Mapping[str, Any]]]:
    policy = job_spec.get("podFailurePolicy")
    rules = policy.get("rules") if isinstance(policy, Mapping) else None
    for place, rule in enumerate(rules if isinstance(rules, list) else ()):
        if isinstance(rule, Mapping):
            yield place, rule


def _matches(rule: Mapping[str, Any], container: str, code: int) -> bool:
    on = rule["onExitCodes"]
    listed = on.get("values") if isinstance(on.get("values"), list) else ()
    if on.get("containerName") not in (None, container) or on.get("operator") not in ("In", "NotIn"):
        return False
    is_in: bool = on["operator"] == "In"
    return (code in listed) is is_in
