"""The PriorityClass of spares, whose name the controller writes."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import yaml

from inplace.common.wire import names as wire
from tests.deploy.test_rbac import granted, role

CLASS: Final = Path(__file__).parents[2] / "deploy" / "spares" / "priorityclass.yaml"
AUTOSCALERS_CUTOFF: Final = -10
"""cluster-autoscaler's default of --expendable-pods-priority-cutoff: it neither keeps nor adds nodes for less."""


def test_a_spare_gives_way_to_everybody_and_takes_nobodys_place() -> None:
    """Its priority is negative, it preempts nobody, and no other Pod gets it by default."""
    (found,) = yaml.safe_load_all(CLASS.read_text())
    assert found["metadata"]["name"] == wire.SPARE_PRIORITY_CLASS
    assert AUTOSCALERS_CUTOFF <= found["value"] < 0
    assert found["preemptionPolicy"] == "Never"
    assert found["globalDefault"] is False


def test_spares_ask_for_no_right() -> None:
    """The controller makes Jobs for them as for the group; it may neither create Pods nor Deployments."""
    verbs = granted(role("ClusterRole", "inplace-controller"))
    assert "create" not in verbs["/pods"]
    assert not [what for what in verbs if what.startswith(("apps/", "scheduling.k8s.io/"))]
