"""docs/metrics.md explains every metric of the controller and every trigger."""

from __future__ import annotations

from inplace.common.jobset.causes import Trigger
from tests.docs.metrics_page import _TRIGGERS, controller_rows


def test_every_family_is_explained() -> None:
    """Every family has a name, a meaning, and its labels if it has any."""
    rows = list(controller_rows())
    assert len(rows) > 40
    assert all(row.text for row in rows)
    assert {row.labels for row in rows if row.name == "inplace_pods"} == {("namespace", "jobset", "scope", "state")}


def test_every_trigger_is_explained() -> None:
    """Every trigger has an explanation."""
    assert _TRIGGERS.keys() == set(Trigger)
