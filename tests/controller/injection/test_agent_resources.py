"""The agent's containers leave a Pod's class as it is, and get limits where the namespace may want them."""

from __future__ import annotations

from typing import Any

import pytest

from inplace.cli.inject.jobset import Refusal
from inplace.controller.injection.container_resources import amounts_of
from tests.cli.command import run_here
from tests.cli.injecting import example, injected, pod_spec_of

PLAIN = example("minimal.yaml")
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
    assert resources_of(injected(text, agent_resources=amounts_of("requests.cpu=1m"))) == {"requests": {"cpu": "1m"}}


def test_the_users_amounts_win() -> None:
    """--agent-resources replaces what it names; a second run with it changes nothing, another amount is refused."""
    given = amounts_of("cpu=1,limits.memory=1Gi,requests.memory=1Gi")
    made = injected(limited(GUARANTEED), agent_resources=given)
    assert resources_of(made) == {kind: {"cpu": "1", "memory": "1Gi"} for kind in ("requests", "limits")}
    assert injected(made, agent_resources=given) == made
    assert injected(made) == made
    with pytest.raises(Refusal, match="change it there, or leave --agent-resources out"):
        injected(made, agent_resources=amounts_of("cpu=2,memory=1Gi"))


@pytest.mark.parametrize("mode", ["sidecar", "supervisor"])
@pytest.mark.parametrize(
    ("option", "words"),
    [
        ("requests.cpu=1", "a request of cpu above its limit"),
        ("requests.cpu=1m", "amounts that make the Pod Burstable"),
        ("limits.memory=1Gi", "amounts that make the Pod Burstable"),
    ],
)
def test_amounts_that_break_the_pod_are_refused(mode: str, option: str, words: str) -> None:
    """Amounts that the server refuses or that would make a Guaranteed Pod Burstable are refused."""
    with pytest.raises(Refusal, match=words):
        injected(limited(GUARANTEED), mode=mode, copies_image=True, agent_resources=amounts_of(option))


@pytest.mark.parametrize(
    "option", ["cpu", "cpu=", "cpu=x", "cpu=-1", "cpu=0", "gpu=1", "limit.cpu=1", "requests.=1", "="]
)
def test_an_unreadable_amount_is_bad_usage(option: str) -> None:
    """An amount that cannot be read ends the command with exit code 2 and an example."""
    done = run_here("inject", "-f", "examples/minimal.yaml", "--agent-resources", option)
    assert done.returncode == 2, done
    assert "cpu=100m,memory=64Mi" in done.stderr
