"""The demo shows JobSets of any origin: it changes what it must, makes nodes that fit, and names what is in its way."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

from inplace.cli.demo.adaptation import DemoError, adapted, with_agent, with_one_guard
from inplace.cli.demo.demo import DemoOptions, ask_consent, run_demo
from inplace.cli.demo.group import LOOK_S, DemoGroup
from inplace.cli.demo.manifest import EXAMPLE, node_shapes, read_demo_manifest
from inplace.common.wire import names as wire
from inplace.simulator.cluster.cluster import virtual_cluster
from tests.cli.command import run
from tests.cli.injecting import as_yaml, saved

JobSet = dict[str, Any]


def jobset(pod: dict[str, Any] | None = None, *, job: dict[str, Any] | None = None, **spec: Any) -> JobSet:
    """Return a plain JobSet of two Pods."""
    template = {"containers": [{"name": "t", "image": "t:1", "command": ["python3", "t.py"]}], **(pod or {})}
    replicated = {"name": "w", "replicas": 1, "template": {"spec": {"parallelism": 2, "template": {"spec": template}}}}
    spec = {"replicatedJobs": [replicated | (job or {})], **spec}
    return {"apiVersion": wire.API_VERSION, "kind": wire.KIND, "metadata": {"name": "j"}, "spec": spec}


def test_nodes_have_what_the_pods_ask_for() -> None:
    """Labels, taints and extended resources of a node come from selector, tolerations and limits."""
    container = {"name": "t", "image": "t:1", "resources": {"limits": {"nvidia.com/gpu": 8, "memory": "1Ti"}}}
    pod = {
        "containers": [container],
        "nodeSelector": {"cloud.example/pool": "a"},
        "tolerations": [
            {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"},
            {"key": "node.kubernetes.io/not-ready", "operator": "Exists"},
        ],
    }
    first, *_ = node_shapes(jobset(pod))
    assert first.labels == {"cloud.example/pool": "a"}
    assert [taint["key"] for taint in first.taints] == ["nvidia.com/gpu"]
    assert first.resources == {"nvidia.com/gpu": "64", "memory": str(8 << 40)}


def test_exclusive_placement_gets_a_domain_for_each_job() -> None:
    """As many values of the topology's label as there are Jobs, and one to spare."""
    spec = jobset(job={"replicas": 3})
    spec["metadata"]["annotations"] = {wire.EXCLUSIVE_TOPOLOGY: "cloud.example/rack"}
    racks = [shape.labels["cloud.example/rack"] for shape in node_shapes(spec)]
    assert len(set(racks)) == 4


def test_as_many_restarts_are_allowed_as_workers_are_killed() -> None:
    """One that allows no restart ends at its first failure: the demo raises it, wherever it stands, and says so."""
    policy, notes = adapted(jobset(failurePolicy={"maxRestarts": 0}), models=False, failures=3)
    assert policy["spec"]["failurePolicy"]["maxRestarts"] == 3
    assert "maxRestarts 0: the demo allows 3, as it kills so many workers" in notes
    given = jobset()
    given["metadata"]["annotations"] = {wire.RESTART_IN_PLACE: "1"}
    changed, notes = adapted(given, models=False, failures=2)
    assert changed["metadata"]["annotations"][wire.RESTART_IN_PLACE] == "2"
    assert notes == ["maxRestarts 1: the demo allows 2, as it kills so many workers"]


def test_one_of_two_containers_with_devices_trains_in_a_model() -> None:
    """A modelled Pod has one guard; the JobSet says by the annotation which container has it."""
    devices = [
        {"name": name, "image": "t:1", "command": ["t"], "resources": {"limits": {"example.com/tpu": 2}}}
        for name in ("chip-1", "chip-2")
    ]
    changed, notes = with_one_guard(jobset({"containers": devices}, failurePolicy={"maxRestarts": 1}))
    assert changed["metadata"]["annotations"][wire.AGENT] == "workers=chip-1"
    assert notes == ["a modelled Pod has one guard: chip-1 trains, and chip-2 only runs beside it"]


def test_one_of_several_jobsets_is_chosen_by_its_name(tmp_path: Path) -> None:
    """--jobset takes one and leaves the others out; without it the refusal names them and the option."""
    night, day = jobset(failurePolicy={"maxRestarts": 1}), jobset(failurePolicy={"maxRestarts": 1})
    night["metadata"], day["metadata"] = {"name": "night"}, {"name": "day"}
    file = Path(saved(tmp_path, as_yaml([night, day])))
    assert read_demo_manifest(file, None, 1, None, models=True, name="day").name == "day"
    for name, words in ((None, "JobSet night, JobSet day.; choose one with --jobset NAME"), ("x", "named x, saw 0")):
        with pytest.raises(DemoError, match=words):
            read_demo_manifest(file, None, 1, None, models=True, name=name)


def test_a_program_of_an_image_needs_a_model() -> None:
    """A container without a command cannot run as a process here, and a model needs no program."""
    spec = jobset({"containers": [{"name": "t", "image": "t:1"}]})
    with pytest.raises(DemoError, match=r"container t of w has no command, .* or use --runtime model"):
        adapted(spec, models=False, failures=1)
    _, notes = adapted(spec, models=True, failures=1)
    assert "container t of w has no command; its model is its image's program" in notes


def test_what_would_wait_for_ever_is_changed_and_named() -> None:
    """A queue, another controller and a missing name are replaced, each with a sentence."""
    given = jobset({"schedulingGates": [{"name": "queue.example/topology"}]}, suspend=True, managedBy="queue.example/x")
    given["metadata"] = {"generateName": "sweep-"}
    changed, notes = adapted(given, models=True, failures=1)
    assert (changed["metadata"]["name"], changed["spec"]["suspend"]) == ("sweep-demo", False)
    assert "managedBy" not in changed["spec"]
    said = " ".join(notes)
    for word in ("generateName", "spec.suspend", "queue.example/x", "queue.example/topology", wire.IN_PLACE_RESTART):
        assert word in said
    assert given["spec"]["suspend"], "the caller's object was changed"


def test_the_last_container_is_taken_for_the_worker_where_no_sign_says_more() -> None:
    """It is open which of two containers trains: the demo takes one, and says how the JobSet may say it."""
    both = [{"name": name, "image": "i:1", "command": [name]} for name in ("proxy", "w")]
    given, _ = adapted(jobset({"containers": both}), models=True, failures=1)
    shown, notes = with_agent(given)
    assert f"{wire.AGENT}: the demo takes w" in " ".join(notes)
    assert given["metadata"]["annotations"] == {wire.AGENT: "workers=w"}
    pod = shown["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]
    assert [each["command"][0] for each in pod["containers"]] == ["proxy", "/inplace/bin/guard"]


def test_a_jobset_to_which_no_agent_can_be_added_is_refused_with_the_reason() -> None:
    """The refusal is the one of `inplace inject`, and of the controller."""
    given = jobset()
    given["spec"]["replicatedJobs"][0]["template"]["spec"]["backoffLimitPerIndex"] = 2
    with pytest.raises(DemoError, match="backoffLimitPerIndex"):
        with_agent(adapted(given, models=True, failures=1)[0])


PLACEHOLDERS = [
    ({"nodeSelector": {"a": "<accelerator>", "b": "<topology>"}}, {}, '.nodeSelector: Invalid value: "<accelerator>"'),
    ({"dnsPolicy": "ClusterFirstWithHost"}, {}, ".dnsPolicy: Unsupported value"),
    ({"tolerations": [{"key": "a", "operator": "Exist"}]}, {}, ".tolerations[0].operator: Unsupported value"),
    ({}, {"name": "<name>", "annotations": {wire.EXCLUSIVE_TOPOLOGY: "rack"}}, "metadata.name: Invalid value"),
]


@pytest.mark.parametrize(("spec", "metadata", "words"), PLACEHOLDERS)
def test_what_the_api_server_refuses_is_one_sentence(
    spec: dict[str, Any], metadata: dict[str, Any], words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The demo does not begin with a JobSet whose Jobs the API refuses, and says where and why in one sentence."""
    given = jobset({"containers": [{"name": "t", "image": "t:1", "command": ["t"]}]} | spec)
    given["metadata"] |= metadata
    file = tmp_path / "jobset.json"
    file.write_text(json.dumps(given))
    options = DemoOptions(None, 1, "model", None, file, seed=1, json=True, keep=False)
    assert run_demo(options) == 1
    said = capsys.readouterr().err
    assert said.startswith(f"inplace demo: {file}: the API server refuses it: ")
    assert words in said
    assert said.count("\n") == 1


def test_pods_that_start_later_are_not_recreated(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Workers wait for an initializer: their Pods are new and replace none, and the killed worker is the cause."""
    spec = jobset()
    (trainer,) = spec["spec"]["replicatedJobs"]
    after = trainer | {"dependsOn": [{"name": "download", "status": "Complete"}]}
    spec["spec"]["replicatedJobs"] = [json.loads(json.dumps(trainer | {"name": "download"})), after]
    file = Path(saved(tmp_path, as_yaml([spec])))
    assert run_demo(DemoOptions(None, 1, "model", None, file, seed=1, json=True, keep=False)) == 0
    result = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert (result["pods_recreated"], [one["trigger"] for one in result["restarts"]]) == (0, ["worker_exit"])


@pytest.mark.virtual_time
async def test_what_stands_in_the_way_is_named_in_the_words_of_explain() -> None:
    """Pods for which there is no node stay away; those that are created only now are no obstacle."""
    manifest = read_demo_manifest(None, 4, 1, None, models=True)
    async with virtual_cluster(nodes=manifest.nodes[:0], adds_agent=True) as cluster:
        group = DemoGroup(cluster, manifest)
        assert await group.in_the_way() == ["the JobSet is gone"]
        await cluster.apply(manifest.documents)
        assert await group.in_the_way() == []
        await cluster.clock.sleep(LOOK_S)
        (found,) = await group.in_the_way()
        assert found.startswith("4 Pods: Pending: unschedulable: 0/0 nodes")


def test_a_manifest_s_commands_need_consent(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Without a terminal a stranger's file needs --yes; a file of ours does not; the first line says what runs here."""
    stranger = tmp_path / "job.yaml"
    with pytest.raises(DemoError, match="--yes"):
        ask_consent(stranger, yes=False)
    with pytest.raises(DemoError, match="--yes"):
        ask_consent(Path("-"), yes=False)
    ask_consent(stranger, yes=True)
    ask_consent(EXAMPLE, yes=False)
    said = capsys.readouterr().err.splitlines()
    assert len(said) == 4
    assert all("run on this machine" in line for line in said)


@pytest.mark.slow
def test_a_demo_that_cannot_go_on_says_why_within_ten_seconds(tmp_path: Path) -> None:
    """A worker whose program is missing is named, with what it printed, and the demo ends."""
    given = jobset()
    container = given["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]["containers"][0]
    container["command"] = ["python3", "/nowhere/train.py"]
    file = saved(tmp_path, as_yaml([given]))
    began_s = time.monotonic()
    result = run("demo", "--yes", "--file", file)
    assert time.monotonic() - began_s < 40  # ten, and the start and the end of the program; a busy machine
    assert result.returncode == 1
    assert "In its way:" in result.stderr or "saw that it ended" in result.stderr
    assert "/nowhere/train.py" in result.stderr
