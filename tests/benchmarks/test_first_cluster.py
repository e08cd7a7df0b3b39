"""The commands of docs/first-cluster.md, by step and by the way in which images get to the nodes."""

from __future__ import annotations

import pytest

from benchmarks.first_cluster import WAYS, steps, table


@pytest.mark.parametrize("way", WAYS)
def test_each_step_of_each_way_has_commands(way: str) -> None:
    """A command belongs to one way or to both; no line is a piece of another, or of the manifest."""
    found = steps(way)
    assert [step.partition(".")[0] for step in found] == list("123456")
    assert all(found.values())
    commands = [command for of_step in found.values() for command in of_step]
    assert {command.split()[0] for command in commands} <= {
        *("make", "kind", "buildah", "kubectl", "helm", ".venv/bin/inplace")
    }
    assert any("docker://" in command for command in commands) == (way == "registry")
    assert any(command.startswith("helm install") for command in commands) == (way == "registry")


def test_the_table_has_each_step_and_the_sum() -> None:
    """A column for each way."""
    assert table({"kind": {"1. a": 1.25, "2. b": 2}, "registry": {"1. a": 1.25, "2. b": 4}}).splitlines() == [
        "| step | kind, seconds | registry, seconds |",
        "|---|---|---|",
        "| 1. a | 1.2 | 1.2 |",
        "| 2. b | 2.0 | 4.0 |",
        "| all | 3.2 | 5.2 |",
    ]
