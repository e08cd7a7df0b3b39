"""The agent's containers leave a Pod's class as it is, and get limits where the namespace may want them."""

from __future__ import annotations

from typing import Any

import pytest

from inplace.cli.inject.inject import Refusal
from inplace.common.wire import names as wire
from tests.cli.injecting import FLOW, injected, pod_spec_of, refused

PLAIN = FLOW
GUARANTEED = "limits: {cpu: 4, memory: 8Gi}"
OURS = {"cpu": "500m", "memory": "128Mi"}


def resources_of(text: str) -> Any:
    """Return the resources of the agent's containers."""
    own = [one["resources"] for one in pod_spec_of(text)["initContainers"] if "resources" in one]
    assert all(one == own[0] for one in own)  # the copier's are the agent's
    return own[0] if own else None


def limited(resources: str, pod: str = "") -> str:
    """Return the example with a worker that has resources, and a Pod with more fields."""
    containers, worker = "{containers: [", "{name: worker,"
    assert PLAIN.count(containers) == PLAIN.count(worker) == 1
    text = PLAIN.replace(containers, f"{{{pod}containers: [")
    return text.replace(worker, f"{worker} resources: {{{resources}}},")


@pytest.mark.parametrize("mode", ["sidecar", "supervisor"])
@pytest.mark.parametrize(
    ("resources", "expected"),
    [
        (GUARANTEED, {"requests": OURS, "limits": OURS}),
        ("requests: {cpu: 4}, limits: {cpu: 4.0, memory: 8Gi}", {"requests": OURS, "limits": OURS}),
        (
            "requests: {cpu: 2}, limits: {cpu: 4, memory: 8Gi}",
            {"requests": {"cpu": "10m", "memory": "32Mi"}, "limits": OURS},
        ),
        (
            "limits: {memory: 8Gi, example.com/gpu: 8}",
            {"requests": {"cpu": "10m", "memory": "32Mi"}, "limits": {"memory": "128Mi"}},
        ),
        ("requests: {cpu: 2}", {"requests": {"cpu": "10m", "memory": "32Mi"}}),
        ("limits: null", {"requests": {"cpu": "10m", "memory": "32Mi"}}),
    ],
)
def test_the_agent_has_limits_where_the_worker_has_them(mode: str, resources: str, expected: object) -> None:
    """The agent has a limit for each resource that the worker limits, and equal requests beside a Guaranteed one."""
    assert resources_of(injected(limited(resources), mode=mode, copies_image=True)) == expected


def test_one_container_without_limits_makes_the_agent_free() -> None:
    """A Pod with one container that has no limits is Burstable already, so the agent has none."""
    text = limited(GUARANTEED).replace(
        "command: [python3, train.py]}", "command: [python3, train.py]}, {name: log, image: log}"
    )
    assert "{name: log" in text
    assert resources_of(injected(text, workers=("worker",))) == {"requests": {"cpu": "10m", "memory": "32Mi"}}


def test_resources_of_the_whole_pod_cover_the_agent() -> None:
    """Beside resources of the Pod the agent requests nothing: its requests could exceed them."""
    text = limited(GUARANTEED, f"resources: {{{GUARANTEED}}}, ")
    assert resources_of(injected(text)) is None
    assert resources_of(injected(text, copies_image=True)) is None
    assert resources_of(injected(asking("requests.cpu=1m", text))) == {"requests": {"cpu": "1m"}}


def asking(amounts: str, text: str) -> str:
    """Return the example with amounts for the agent in its annotation."""
    name = "{name: minimal,"
    assert text.count(name) == 1
    return text.replace(name, f"{name} annotations: {{{wire.AGENT}: '{amounts}'}},")


def test_the_users_amounts_win() -> None:
    """The annotation replaces what it names; a second run changes nothing, and another amount is refused."""
    amounts = "cpu=1,limits.memory=1Gi,requests.memory=1Gi"
    made = injected(asking(amounts, limited(GUARANTEED)))
    assert resources_of(made) == {kind: {"cpu": "1", "memory": "1Gi"} for kind in ("requests", "limits")}
    assert injected(made) == made
    words = refused(made.replace(amounts, "cpu=2,memory=1Gi"))
    assert words.endswith("needed what inplace.dev/agent says; change it there, or remove the annotation")


@pytest.mark.parametrize("mode", ["sidecar", "supervisor"])
@pytest.mark.parametrize(
    ("amounts", "words"),
    [
        ("requests.cpu=1", "a request of cpu above its limit"),
        ("requests.cpu=1m", "amounts that make the Pod Burstable"),
        ("limits.memory=1Gi", "amounts that make the Pod Burstable"),
    ],
)
def test_amounts_that_break_the_pod_are_refused(mode: str, amounts: str, words: str) -> None:
    """Amounts that the server refuses or that would make a Guaranteed Pod Burstable are refused."""
    with pytest.raises(Refusal, match=f'metadata.annotations\\["{wire.AGENT}"\\]: found {words}'):
        injected(asking(amounts, limited(GUARANTEED)), mode=mode, copies_image=True)
