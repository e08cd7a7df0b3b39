"""
Say whether a JobSet restarts in place, and how often at most: its failure policy, and the annotation RESTART_IN_PLACE.

Controller, agent and command line read it here alone, so that they agree. The annotation is for programs that make
JobSets and write no restart strategy (docs/adr/0090). Pure; on the agent's start path.
"""

from __future__ import annotations

from collections.abc import Mapping

from inplace.common.bare.typed import Any, Final
from inplace.common.protocol.errors import RemoteProtocolError
from inplace.common.wire import names as wire

_DEFAULTS: Final = (None, "", "Recreate")  # the API server writes Recreate into a failurePolicy that names no strategy


def restarts_in_place(strategy: object, annotation: object) -> bool:
    """Say whether a JobSet asks for restarts in place; an annotation of any value counts where no strategy was chosen.

    Args:
        strategy: spec.failurePolicy.restartStrategy.
        annotation: the text of `RESTART_IN_PLACE`; None without it.
    """
    return strategy == wire.IN_PLACE_RESTART or (annotation is not None and strategy in _DEFAULTS)


def restarts_allowed(annotation: object) -> int:
    """Return how many restarts the annotation allows, an int32 >= 0.

    Raises:
        RemoteProtocolError: it is no such number; nothing is allowed then.
    """
    return wire.parse_int32(annotation, f"metadata.annotations[{wire.RESTART_IN_PLACE}]", least=0)


def failure_policy_of(jobset: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Return the failure policy of a JobSet: its spec's, with what the annotation says of strategy and maxRestarts."""
    policy: Mapping[str, Any] | None = (jobset.get("spec") or {}).get("failurePolicy")
    annotation = ((jobset.get("metadata") or {}).get("annotations") or {}).get(wire.RESTART_IN_PLACE)
    given = policy or {}
    strategy = given.get("restartStrategy")
    if annotation is None or strategy == wire.IN_PLACE_RESTART or not restarts_in_place(strategy, annotation):
        return policy
    try:
        restarts = restarts_allowed(annotation)
    except RemoteProtocolError:
        restarts = 0  # the strategy stays, because the Pods have agents; controller/plan/problems/policies.py says why
    return {**given, "restartStrategy": wire.IN_PLACE_RESTART, "maxRestarts": restarts}
