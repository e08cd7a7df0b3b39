"""What an agent adds to a Pod that a quota refuses, in figures."""

from __future__ import annotations

from decimal import Decimal

import pytest

from inplace.common.injection.job import add_agent
from inplace.common.injection.pod import InjectOptions
from inplace.common.injection.pod_cost import agents_amounts, listed, refused_words
from inplace.common.injection.pod_roles import Member
from inplace.common.kube.quantity import parse_quantity, quantity_text
from inplace.common.kube.resources import KubeObject

SMALL: KubeObject = {"requests": {"cpu": "1"}}
GUARANTEED: KubeObject = {"limits": {"cpu": "8", "memory": "64Gi"}}


def member(resources: KubeObject, *, pods: int = 5, copies: bool = False) -> Member:
    """Return Pods with the agent."""
    worker = {"name": "worker", "image": "train:1", "command": ["train"], "resources": resources}
    job = {"parallelism": pods, "template": {"spec": {"containers": [worker]}}}
    found = Member({"name": "workers", "replicas": 1, "template": {"spec": job}}, "spec.replicatedJobs[0]")
    assert list(add_agent(found, InjectOptions(copies_image=copies))) == []
    return Member(found.raw, found.path)


@pytest.mark.parametrize("copies", [False, True])
def test_the_agents_share(copies: bool) -> None:
    """Its sidecar runs beside the worker; the container that copies its programs ends before the worker starts."""
    assert listed(agents_amounts(member(SMALL, copies=copies))) == "requests.cpu=10m, requests.memory=32Mi"
    assert (
        listed(agents_amounts(member(GUARANTEED, copies=copies)))
        == "requests.cpu=500m, requests.memory=128Mi, limits.cpu=500m, limits.memory=128Mi"
    )


def exceeded(figures: str) -> str:
    """Return the Job controller's Event with the API server's words (kube-apiserver 1.36)."""
    return f'Error creating: pods "train-workers-0-4-x7k2p" is forbidden: exceeded quota: team, {figures}'


def part(name: str, asked: str, agents: str, in_all: str, left: str) -> str:
    """Return the words about one resource of the quota."""
    share = f"of which {agents} for the agent ({in_all} in all 5 Pods of workers)"
    return f"{name}: a Pod asks for {asked}, {share}, and {left} is left"


FITS, NEITHER = "without the agent it would fit", "without the agent it would not fit either"
TWO = (
    "requested: limits.memory=65664Mi,requests.cpu=8500m, used: limits.memory=256Gi,requests.cpu=32, "
    "limited: limits.memory=320Gi,requests.cpu=40"
)
BOTH = [
    part("limits.memory", "65664Mi", "128Mi", "640Mi", "64Gi of 320Gi"),
    part("requests.cpu", "8500m", "500m", "2500m", "8 of 40"),
    FITS,
]


@pytest.mark.parametrize(
    ("resources", "figures", "words"),
    [
        (
            SMALL,
            "requested: requests.cpu=1010m, used: requests.cpu=4040m, limited: requests.cpu=5",
            [part("requests.cpu", "1010m", "10m", "50m", "960m of 5"), NEITHER],
        ),
        (
            SMALL,
            "requested: cpu=1010m, used: cpu=4, limited: cpu=5",
            [part("cpu", "1010m", "10m", "50m", "1 of 5"), FITS],
        ),
        (GUARANTEED, TWO, BOTH),
        (SMALL, "requested: pods=1, used: pods=4, limited: pods=4", [part("pods", "1", "0", "0", "0 of 4"), NEITHER]),
    ],
)
def test_a_quota_is_told_with_figures(resources: KubeObject, figures: str, words: list[str]) -> None:
    """What a Pod asks for, what of it the agent adds, in one Pod and in all, what is left; and whether that decides."""
    said = refused_words(exceeded(figures), member(resources))
    assert said.startswith(f"exceeded quota team: {'; '.join(words)}; ")
    assert said.endswith(
        "raise the quota, lower the worker's requests, or set the agent's amounts in inplace.dev/agent"
    )
    assert len(said) < 900  # an Event has 1,024 bytes


@pytest.mark.parametrize(
    "verdict",
    [
        'pods "train-workers-0-4-x7k2p" is forbidden: minimum memory usage per Container is 64Mi, but request is 32Mi',
        'pods "x" is forbidden: failed quota: team: must specify limits.cpu for: worker; limits.memory for: worker',
        'pods "x" is forbidden: exceeded quota: nonsense',
        'pods "x" is forbidden: exceeded quota: team, requested: much, used: cpu=1, limited: cpu=2',
        "",
    ],
)
def test_another_refusal_is_told_beside_the_agents_amounts(verdict: str) -> None:
    """A LimitRange looks at each container: the agent's amounts show whether it means the agent's."""
    said = refused_words(f"Error creating: {verdict}", member(SMALL))
    assert said.startswith(f"{verdict}; the agent's container has requests.cpu=10m, requests.memory=32Mi, and")
    assert "inplace.dev/agent sets others" in said


@pytest.mark.parametrize(
    ("amount", "is_bytes", "text"),
    [
        ("960m", False, "960m"),
        ("2048", False, "2048"),
        ("0", False, "0"),
        ("1Gi", True, "1Gi"),
        ("65664Mi", True, "65664Mi"),
        ("1500", True, "1500"),
        ("0", True, "0"),
    ],
)
def test_quantities_are_written_as_people_do(amount: str, is_bytes: bool, text: str) -> None:
    """And read back as the same number."""
    number = parse_quantity(amount)
    assert number is not None
    assert quantity_text(number, is_bytes=is_bytes) == text
    assert parse_quantity(text) == number
    assert quantity_text(Decimal("0.0105"), is_bytes=False) == "10m"
