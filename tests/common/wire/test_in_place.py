"""Whether a JobSet restarts in place: its failure policy, and one annotation for programs that write none."""

from __future__ import annotations

from typing import Any

import pytest

from inplace.common.protocol.errors import RemoteProtocolError
from inplace.common.wire import names as wire
from inplace.common.wire.in_place import failure_policy_of, restarts_allowed, restarts_in_place


def policy_of(policy: dict[str, Any] | None, annotation: str | None) -> Any:
    """Return the failure policy of a JobSet with these."""
    annotations = {} if annotation is None else {wire.RESTART_IN_PLACE: annotation}
    spec = {} if policy is None else {"failurePolicy": policy}
    return failure_policy_of({"metadata": {"annotations": annotations}, "spec": spec})


IN_PLACE = {"restartStrategy": "InPlaceRestart", "maxRestarts": 3}
BLOCKING = {"restartStrategy": "BlockingRecreate"}
RULES = [{"action": "FailJobSet"}]


@pytest.mark.parametrize(
    ("policy", "annotation", "expected"),
    [
        (None, None, None),
        ({"maxRestarts": 2}, None, {"maxRestarts": 2}),
        (None, "10", {"restartStrategy": "InPlaceRestart", "maxRestarts": 10}),
        ({}, "10", {"restartStrategy": "InPlaceRestart", "maxRestarts": 10}),
        (
            {"restartStrategy": "Recreate", "maxRestarts": 0, "rules": RULES},
            "10",
            {"restartStrategy": "InPlaceRestart", "maxRestarts": 10, "rules": RULES},
        ),
        (IN_PLACE, "10", IN_PLACE),
        (BLOCKING, "10", BLOCKING),
        (None, "ten", {"restartStrategy": "InPlaceRestart", "maxRestarts": 0}),
    ],
)
def test_the_policy_that_holds(policy: dict[str, Any] | None, annotation: str | None, expected: Any) -> None:
    """The annotation stands in for a strategy that nobody chose; its number is the budget."""
    assert policy_of(policy, annotation) == expected
    strategy = (policy or {}).get("restartStrategy")
    assert restarts_in_place(strategy, annotation) == ((expected or {}).get("restartStrategy") == "InPlaceRestart")


@pytest.mark.parametrize("jobset", [{}, {"metadata": None, "spec": None}, {"metadata": {"annotations": None}}])
def test_an_object_without_its_parts_has_no_policy(jobset: dict[str, Any]) -> None:
    """Manifests leave out what they like."""
    assert failure_policy_of(jobset) is None


@pytest.mark.parametrize("text", ["", "-1", "1e9", "ten", " 1", "2147483648", "1.0", None, 10])
def test_what_is_no_number_of_restarts(text: object) -> None:
    """The message says the annotation and both values."""
    with pytest.raises(RemoteProtocolError, match=r"restart-in-place\]: expected an integer from 0 to 2147483647"):
        restarts_allowed(text)


def test_numbers() -> None:
    """Every int32 that is not negative."""
    assert [restarts_allowed(text) for text in ("0", "10", "2147483647")] == [0, 10, 2147483647]
