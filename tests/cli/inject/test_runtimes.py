"""A runtime of Kubeflow Trainer holds a JobSet, and gets the agent as a JobSet does."""

from __future__ import annotations

import json
from textwrap import indent
from typing import Any, Final

import pytest

from inplace.cli.manifests.yaml_loader import parse
from inplace.common.wire import names as wire
from tests.cli.injecting import injected

SPEC: Final = """\
replicatedJobs:
- name: node
  template:
    spec:
      template:
        spec:
          containers:
          - name: node
            image: torch:1
"""
RUNTIME: Final = f"""\
apiVersion: trainer.kubeflow.org/v1alpha1
kind: KIND
metadata:
  name: torch
spec:
  mlPolicy: {{numNodes: 1, torch: {{}}}} # how many is the TrainJob's
  template:
    spec:
{indent(SPEC, " " * 6)}"""
JOBSET: Final = f"""\
apiVersion: jobset.x-k8s.io/v1alpha2
kind: JobSet
metadata:
  name: torch
spec:
{indent(SPEC, "  ")}"""


def with_agent(text: str, **options: Any) -> list[dict[str, Any]]:
    """Return the documents of a manifest with the agent in it."""
    return [dict(each) for each in parse(injected(text, namespace="team", **options))]


@pytest.mark.parametrize("kind", ["ClusterTrainingRuntime", "TrainingRuntime"])
def test_it_gets_what_a_jobset_gets(kind: str) -> None:
    """The runtime's template becomes the spec of the injected JobSet, and the account is the same."""
    *others, runtime = with_agent(RUNTIME.replace("KIND", kind), barrier="probe")
    *expected, jobset = with_agent(JOBSET, barrier="probe")
    assert runtime["spec"]["template"]["spec"] == jobset["spec"]
    assert [one["kind"] for one in others] == [one["kind"] for one in expected]
    (rule,) = next(one for one in others if one["kind"] == "Role")["rules"]
    assert "resourceNames" not in rule, "its JobSets are named as their TrainJobs"
    assert (runtime["kind"], runtime["metadata"]) == (kind, {"name": "torch"})


def test_twice_is_once() -> None:
    """Injecting an injected runtime changes nothing."""
    once = injected(RUNTIME.replace("KIND", "ClusterTrainingRuntime"), barrier="probe")
    assert injected(once, barrier="probe") == once


def test_annotations_go_to_its_jobsets() -> None:
    """What a JobSet says in annotations stands on the runtime's template, from which its JobSets get it."""
    metadata = {"annotations": {wire.RESTART: "containers"}}
    text = RUNTIME.replace("KIND", "TrainingRuntime").replace(
        "\n  template:\n", f"\n  template:\n    metadata: {json.dumps(metadata)}\n", 1
    )
    *_, runtime = with_agent(text, barrier="probe")
    assert runtime["spec"]["template"]["metadata"] == metadata
    (job,) = runtime["spec"]["template"]["spec"]["replicatedJobs"]
    (worker,) = job["template"]["spec"]["template"]["spec"]["containers"]
    assert worker["terminationMessagePolicy"] == "FallbackToLogsOnError"


def test_a_command_that_is_not_shown() -> None:
    """A guard needs the worker's command; where the TrainJob brings it, a startup probe is the barrier."""
    *_, runtime = with_agent(RUNTIME.replace("KIND", "ClusterTrainingRuntime"))
    (job,) = runtime["spec"]["template"]["spec"]["replicatedJobs"]
    (agent,) = job["template"]["spec"]["template"]["spec"]["initContainers"]
    assert "startupProbe" in agent
