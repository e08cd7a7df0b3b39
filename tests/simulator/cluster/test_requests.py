"""What a Pod takes of its node."""

from __future__ import annotations

from typing import Any

import pytest

from inplace.simulator.cluster.scheduler import requests_of


def container(limits: dict[str, str] | None = None, *, sidecar: bool = False, **requests: str) -> dict[str, Any]:
    """Return a container with these resources."""
    always = {"restartPolicy": "Always"} if sidecar else {}
    return always | {"resources": {"limits": limits, "requests": requests}}


@pytest.mark.parametrize(
    ("init_containers", "containers", "cpu"),
    [
        pytest.param([], [container({"cpu": "2"})], 2.0, id="a limit stands for a missing request"),
        pytest.param([], [container({"cpu": "4"}, cpu="1500m")], 1.5, id="a request is less than its limit"),
        pytest.param([], [container(cpu="1"), container(cpu="2")], 3.0, id="containers add up"),
        pytest.param(
            [container(cpu="3"), container(cpu="2")], [container(cpu="1")], 3.0, id="init containers take turns"
        ),
        pytest.param([container(cpu="1", sidecar=True)], [container(cpu="2")], 3.0, id="a sidecar stays"),
        pytest.param(
            [container(cpu="1", sidecar=True), container(cpu="4")],
            [container(cpu="2")],
            5.0,
            id="an init container runs beside the sidecars before it",
        ),
    ],
)
def test_requests(init_containers: list[dict[str, Any]], containers: list[dict[str, Any]], cpu: float) -> None:
    """The scheduler counts requests as kube-scheduler does."""
    pod = {"spec": {"initContainers": init_containers, "containers": containers}}
    assert requests_of(pod) == {"pods": 1.0, "cpu": cpu}


def test_a_resource_that_only_one_of_both_names_counts() -> None:
    """A limit on one resource does not hide the request for another."""
    pod = {"spec": {"containers": [container({"example.com/gpu": "8"}, cpu="1")]}}
    assert requests_of(pod) == {"pods": 1.0, "example.com/gpu": 8.0, "cpu": 1.0}


def test_what_one_init_container_alone_needs_counts() -> None:
    """The next init container does not take it back."""
    init_containers = [container({"example.com/gpu": "1"}), container(cpu="1")]
    pod = {"spec": {"initContainers": init_containers, "containers": [container()]}}
    assert requests_of(pod) == {"pods": 1.0, "example.com/gpu": 1.0, "cpu": 1.0}
