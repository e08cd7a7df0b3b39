"""The JobSet that Trainer makes of a TrainJob and its runtime, as far as lint needs it."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

from inplace.cli.manifests.trainer import jobset_of, runtime_of
from inplace.common.kube.resources import KubeObject

API = "trainer.kubeflow.org/v1alpha1"
TRAINS = {"labels": {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}}


def runtime(name: str = "torch", kind: str = "ClusterTrainingRuntime", **policy: Any) -> KubeObject:
    """Return a runtime whose container has a variable and a mount, and no command."""
    container = {"name": "node", "image": "a:1", "env": [{"name": "A", "value": "1"}, {"name": "B", "value": "1"}]}
    container |= {"volumeMounts": [{"name": "data", "mountPath": "/data"}]}
    helper = {"name": "log", "image": "log:1", "command": ["log"]}
    pod = {"spec": {"containers": [container, helper], "volumes": [{"name": "data", "emptyDir": {}}]}}
    node = {"name": "node", "template": {"metadata": TRAINS, "spec": {"template": pod}}}
    template = {"metadata": {"annotations": {"a": "runtime", "b": "runtime"}}, "spec": {"replicatedJobs": [node]}}
    return {
        "apiVersion": API,
        "kind": kind,
        "metadata": {"name": name},
        "spec": {"mlPolicy": {"numNodes": 2, **policy}, "template": template},
    }


def mpi_runtime(**policy: Any) -> KubeObject:
    """Return a runtime with a launcher, which trains, and nodes, which wait for it."""
    made = runtime(mpi=policy)
    jobs = made["spec"]["template"]["spec"]["replicatedJobs"]
    node = deepcopy(jobs[0])
    jobs[0]["name"] = "launcher"
    node["template"]["metadata"] = {}
    jobs.append(node)
    return made


def train_job(**spec: Any) -> KubeObject:
    """Return a TrainJob of that runtime."""
    metadata = {"name": "train", "namespace": "team"}
    return {
        "apiVersion": API,
        "kind": "TrainJob",
        "metadata": metadata,
        "spec": {"runtimeRef": {"name": "torch"}, **spec},
    }


def patch(template: KubeObject) -> KubeObject:
    """Return a patch of the runtime's template."""
    return {"manager": "example.com/me", "trainingRuntimeSpec": {"template": template}}


def jobs_of(jobset: KubeObject) -> dict[str, KubeObject]:
    """Return the Job specs by replicatedJob."""
    return {job["name"]: job["template"]["spec"] for job in jobset["spec"]["replicatedJobs"]}


def containers_of(jobset: KubeObject, name: str = "node") -> dict[str, KubeObject]:
    """Return the containers of a replicatedJob by name."""
    return {one["name"]: one for one in jobs_of(jobset)[name]["template"]["spec"]["containers"]}


def test_the_trainer_of_a_trainjob() -> None:
    """Image, command, arguments, resources and number of nodes are the TrainJob's; variables are merged by name."""
    given = {"image": "b:2", "command": ["torchrun"], "args": ["x.py"], "numNodes": 3}
    env = [{"name": "B", "value": "2"}, {"name": "C", "value": "2"}]
    resources = {"limits": {"nvidia.com/gpu": 8}}
    held = runtime()
    before = deepcopy(held)
    made = jobset_of(train_job(trainer={**given, "env": env, "resourcesPerNode": resources}), held)
    worker = containers_of(made)["node"]
    assert (worker["image"], worker["command"], worker["args"]) == ("b:2", ["torchrun"], ["x.py"])
    assert {one["name"]: one["value"] for one in worker["env"]} == {"A": "1", "B": "2", "C": "2"}
    assert worker["resources"] == resources
    assert containers_of(made)["log"] == containers_of({"spec": held["spec"]["template"]["spec"]})["log"]
    assert (jobs_of(made)["node"]["parallelism"], jobs_of(made)["node"]["completions"]) == (3, 3)
    assert (made["metadata"]["name"], made["metadata"]["namespace"], held) == ("train", "team", before)


def test_what_a_trainjob_leaves_open_is_the_runtimes() -> None:
    """Without a trainer the number of nodes is mlPolicy's, and the image the runtime's."""
    made = jobset_of(train_job(), runtime())
    assert jobs_of(made)["node"]["parallelism"] == 2
    assert containers_of(made)["node"]["image"] == "a:1"
    assert "command" not in containers_of(made)["node"]


def test_of_mpi_the_launcher_may_be_one_of_the_nodes() -> None:
    """The command is the launcher's; the nodes keep theirs."""
    for as_node, nodes in ((True, 3), (False, 4)):
        made = jobset_of(
            train_job(trainer={"numNodes": 4, "command": ["mpirun"]}), mpi_runtime(runLauncherAsNode=as_node)
        )
        assert {name: spec["parallelism"] for name, spec in jobs_of(made).items()} == {"launcher": 1, "node": nodes}
        assert containers_of(made, "launcher")["node"]["command"] == ["mpirun"]
        assert "command" not in containers_of(made)["node"]


def test_annotations_and_patches() -> None:
    """Of annotations of one name the last patch's counts; entries of lists are told apart as Kubernetes does."""
    pod = {"spec": {"serviceAccountName": "trainer", "containers": [{"name": "node"}], "volumes": [{"name": "more"}]}}
    pod["spec"]["containers"] = [{"name": "node", "volumeMounts": [{"name": "more", "mountPath": "/more"}]}]
    job = {"name": "node", "template": {"metadata": {"annotations": {"x": "y"}}, "spec": {"template": pod}}}
    patches = [patch({"metadata": {"annotations": {"b": "patch"}}}), patch({"spec": {"replicatedJobs": [job]}})]
    made = jobset_of(train_job(annotations={"b": "older", "c": "older"}, runtimePatches=patches), runtime())
    assert made["metadata"]["annotations"] == {"a": "runtime", "b": "patch", "c": "older"}
    (node,) = made["spec"]["replicatedJobs"]
    assert node["template"]["metadata"] == {**TRAINS, "annotations": {"x": "y"}}
    spec = node["template"]["spec"]["template"]["spec"]
    assert spec["serviceAccountName"] == "trainer"
    assert [one["name"] for one in spec["volumes"]] == ["data", "more"]
    assert [one["mountPath"] for one in containers_of(made)["node"]["volumeMounts"]] == ["/data", "/more"]
    assert list(containers_of(made)) == ["node", "log"]


def test_which_runtime_a_trainjob_names() -> None:
    """A TrainingRuntime is of the TrainJob's namespace; a ClusterTrainingRuntime of none, and the default."""
    cluster, near, far = runtime(), runtime(kind="TrainingRuntime"), runtime(kind="TrainingRuntime")
    near["metadata"]["namespace"], far["metadata"]["namespace"] = "team", "other"
    here = [far, near, cluster, {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "torch"}}]
    named = {"name": "torch", "kind": "TrainingRuntime"}
    assert runtime_of(train_job(), here) is cluster
    assert runtime_of(train_job(runtimeRef=named), here) is near
    assert runtime_of(train_job(runtimeRef=named), [far]) is None
    assert runtime_of(train_job(runtimeRef={"name": "jax"}), here) is None
