"""Lint and inject read what Kubeflow Trainer makes JobSets of: TrainJobs, runtimes, and Lists of them."""

from __future__ import annotations

from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest

from inplace.cli.inject.inject import Refusal
from inplace.cli.lint.lint import LintReport, lint
from inplace.cli.manifests.documents import Stream, StreamError, read_stream
from inplace.cli.manifests.yaml_loader import parse
from inplace.common.kube.resources import KubeObject
from inplace.common.wire import names as wire
from tests.cli.command import run_here
from tests.cli.injecting import as_yaml, injected, saved
from tests.cli.manifests.test_trainer import API, mpi_runtime, patch, runtime, train_job

IN_PLACE = patch({"metadata": {"annotations": {wire.RESTART_IN_PLACE: "10"}}})
COMMAND = {"command": ["torchrun", "train.py"], "numNodes": 2}


def shipped() -> KubeObject:
    """Return a runtime as Trainer ships one: a container with an image."""
    made = runtime()
    pod = made["spec"]["template"]["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]
    pod["containers"] = [{"name": "node", "image": "torch:2"}]
    return made


def reports(*documents: Any) -> dict[str, LintReport]:
    """Return what lint says, by name."""
    return {report.name: report for report in lint(Stream("manifest", "", documents))}


def rules(report: LintReport) -> list[str]:
    """Return the rules of a report's findings."""
    return [finding.rule for finding in report.findings]


def test_a_trainjob_with_the_annotation_and_its_runtime_is_clean() -> None:
    """The runtime alone is not judged: its Pods lack the command that the TrainJob brings."""
    found = reports(shipped(), train_job(trainer=COMMAND, runtimePatches=[IN_PLACE]))
    assert {name: rules(report) for name, report in found.items()} == {"JobSet of TrainJob team/train": []}
    (report,) = found.values()
    assert report.in_place
    assert "up to 10 times" in report.policy[0]


def test_a_list_is_its_items() -> None:
    """As `kubectl get -o yaml` prints several objects."""
    items = [shipped(), train_job(trainer=COMMAND, runtimePatches=[IN_PLACE])]
    assert reports({"apiVersion": "v1", "kind": "List", "items": items}) == reports(*items)


def test_a_trainjob_alone_says_what_it_can() -> None:
    """What its runtime has is not known; the annotation is, and so is a mistake in it."""
    (report,) = reports(train_job(trainer=COMMAND, runtimePatches=[IN_PLACE])).values()
    assert rules(report) == ["runtime-unknown"]
    assert "ClusterTrainingRuntime torch, which is not in this file" in str(report.findings[0])
    assert "up to 10 times" in report.policy[0]
    bad = patch({"metadata": {"annotations": {wire.RESTART_IN_PLACE: "ten"}}})
    (report,) = reports(train_job(runtimePatches=[bad])).values()
    assert rules(report) == ["runtime-unknown", "spec-problem", "max-restarts"]
    (report,) = reports(train_job()).values()
    assert (rules(report), report.policy) == (["runtime-unknown"], ())
    restarting = {"command": ["torchrun", "--max-restarts=3", "train.py"]}
    (report,) = reports(train_job(trainer=restarting, runtimePatches=[IN_PLACE])).values()
    assert rules(report) == ["runtime-unknown", "torchrun-restarts"]


def test_a_runtime_alone_is_judged_as_its_jobset() -> None:
    """Its annotations are those of its template; its name need not be a JobSet's."""
    made = shipped()
    made["metadata"]["name"] = "torchtune-llama3.2-1b"
    (report,) = reports(made).values()
    assert (report.name, rules(report)) == ("JobSet of ClusterTrainingRuntime torchtune-llama3.2-1b", [])
    assert "Nothing restarts in place here" in report.policy[0]
    made["spec"]["template"]["metadata"]["annotations"][wire.RESTART_IN_PLACE] = "10"
    (report,) = reports(made).values()
    assert (report.in_place, rules(report)) == (True, ["worker-start"])  # no command: the image's ENTRYPOINT


def test_annotations_that_trainer_gives_to_nobody() -> None:
    """Those of the TrainJob and of the runtime themselves."""
    lost, job = shipped(), train_job(trainer=COMMAND)
    for one in (lost, job):
        one["metadata"]["annotations"] = {wire.RESTART_IN_PLACE: "10", "example.com/owner": "me"}
    (report,) = reports(lost, job).values()
    assert rules(report) == ["trainer-annotation", "trainer-annotation"]
    assert "spec.runtimePatches[].trainingRuntimeSpec.template.metadata.annotations" in str(report.findings[0])
    assert "found inplace.dev/restart-in-place on ClusterTrainingRuntime torch itself" in str(report.findings[1])
    assert not report.in_place


def test_a_launcher_and_its_nodes_restart_together() -> None:
    """MPI's launcher gets the TrainJob's command, its nodes run sshd: each is a guarded worker of one group."""
    made = mpi_runtime(runLauncherAsNode=True)
    for job in made["spec"]["template"]["spec"]["replicatedJobs"]:
        container = {"name": "node", "image": "mpi:1", "securityContext": {"runAsUser": 1000}}
        is_node = job["name"] == "node"
        job["template"]["spec"]["template"]["spec"]["containers"] = [
            container | ({"command": ["/usr/sbin/sshd"], "args": ["-De"]} if is_node else {})
        ]
    (report,) = reports(made, train_job(trainer={"command": ["mpirun", "a"]}, runtimePatches=[IN_PLACE])).values()
    assert (rules(report), report.in_place) == ([], True)


def test_the_command_lints_a_trainjob(tmp_path: Path) -> None:
    """The embedded API server judges the JobSet, too."""
    file = saved(tmp_path, as_yaml([shipped(), train_job(trainer=COMMAND, runtimePatches=[IN_PLACE])]))
    said = run_here("lint", "-f", file)
    assert said.stdout.splitlines()[0] == "JobSet of TrainJob team/train: clean"
    assert said.returncode == 0


@pytest.mark.parametrize(
    "spoil",
    [{"runtimePatches": {}}, {"trainer": []}, {"runtimeRef": "torch"}, {"trainer": {"command": "torchrun"}}],
    ids=str,
)
def test_a_trainjob_in_name_only(tmp_path: Path, spoil: dict[str, Any]) -> None:
    """The path and what was seen are said."""
    with pytest.raises(StreamError, match=rf"TrainJob: spec.{next(iter(spoil))}.*: expected a"):
        read_stream(saved(tmp_path, as_yaml([train_job(**({"runtimePatches": [IN_PLACE]} | spoil))])))


def with_agent(*documents: KubeObject, **options: Any) -> list[dict[str, Any]]:
    """Return what inject prints of documents."""
    return [dict(each) for each in parse(injected(as_yaml(documents), **options))]


def test_inject_lets_a_trainjob_ask_for_it() -> None:
    """A TrainJob has no Pod template, so it gets the annotation; a number that is there stays."""
    (made,) = with_agent(train_job(trainer=COMMAND))
    (added,) = made["spec"]["runtimePatches"]
    assert added["trainingRuntimeSpec"] == IN_PLACE["trainingRuntimeSpec"]
    assert with_agent(made) == [made]
    other = train_job(runtimePatches=[patch({"metadata": {"annotations": {wire.RESTART_IN_PLACE: "3"}}})])
    assert with_agent(other) == [other]


def test_inject_changes_the_runtime_where_it_is_there() -> None:
    """Its TrainJob stays; where its command would replace the guard's, that is refused."""
    guarded = shipped()
    pod = guarded["spec"]["template"]["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]
    pod["containers"][0]["command"] = ["torchrun", "default.py"]
    *_, changed, job = with_agent(guarded, train_job())
    assert (job, "inplace-agent" in str(changed)) == (train_job(), True)
    with pytest.raises(Refusal, match=r"TrainJob train: spec.trainer.command: found a command, which replaces"):
        with_agent(guarded, train_job(trainer=COMMAND))
    launched = mpi_runtime()
    launched["spec"]["template"]["spec"]["replicatedJobs"][1]["template"]["spec"]["template"] = {"spec": deepcopy(pod)}
    *_, job = with_agent(launched, train_job(trainer=COMMAND), workers=("node",))
    assert job == train_job(trainer=COMMAND)  # the command is the launcher's, and the guard is the nodes'
    *_, job = with_agent(guarded, train_job(trainer=COMMAND), barrier="probe")
    assert job == train_job(trainer=COMMAND)


def test_inject_takes_the_number_of_the_annotation() -> None:
    """A JobSet with the annotation gets a failure policy that says the same."""
    metadata = {"name": "a", "annotations": {wire.RESTART_IN_PLACE: "4"}}
    spec = deepcopy(shipped()["spec"]["template"]["spec"])
    *_, made = with_agent({"apiVersion": wire.API_VERSION, "kind": wire.KIND, "metadata": metadata, "spec": spec})
    assert made["spec"]["failurePolicy"] == {"maxRestarts": 4, "restartStrategy": "InPlaceRestart"}


def test_other_kinds_pass_through() -> None:
    """A kind of that group that is neither is not read."""
    other = {"apiVersion": API, "kind": "Other", "metadata": {"name": "a"}, "spec": {"template": []}}
    assert with_agent(other, train_job())[0] == other
