from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from inplace.simulator.cluster.manifests import with_pods
from inplace.simulator.cluster.pod_env import PodConfigError, container_command, container_env
from inplace.simulator.cluster.pod_folder import PodFolder
from inplace.simulator.cluster.scheduler import requests_of

POD: dict[str, Any] = {
    "metadata": {"name": "p", "namespace": "ns", "uid": "u", "annotations": {"jobset.sigs.k8s.io/epoch": "4"}},
    "spec": {
        "nodeName": "n",
        "containers": [],
        "volumes": [
            {"name": "scratch", "emptyDir": {}},
            {"name": "host", "hostPath": {"path": "/data"}},
            {"name": "claim", "persistentVolumeClaim": {"claimName": "c"}},
        ],
    },
}


def field(path: str) -> dict[str, Any]:
    """Return the source of a downward-API variable."""
    return {"fieldRef": {"fieldPath": path}}


def test_the_downward_api_reads_the_pod_as_it_is_now() -> None:
    """A changed annotation shows at the next evaluation; a missing one is empty."""
    epoch = {"name": "EPOCH", "valueFrom": field("metadata.annotations['jobset.sigs.k8s.io/epoch']")}
    other = {"name": "OTHER", "valueFrom": field("metadata.annotations['none']")}
    address = {"name": "IP", "valueFrom": field("status.podIP")}
    env = container_env({"env": [epoch, other, address]}, POD, "127.1.1.1", "127.0.0.1", {"HOME": "/"})
    assert env == {"HOME": "/", "EPOCH": "4", "OTHER": "", "IP": "127.1.1.1"}


def test_references_expand_in_order() -> None:
    """$(NAME) sees earlier variables, unknown names stay, $$ is a dollar."""
    variables = [{"name": "A", "value": "1"}, {"name": "B", "value": "$(A)$(C)$$(A)"}, {"name": "C", "value": "x"}]
    env = container_env({"env": variables}, POD, "", "", {})
    assert env["B"] == "1$(C)$(A)"
    assert container_command({"command": ["run", "$(A)"], "args": ["--c=$(C)"]}, env) == ["run", "1", "--c=x"]


def test_an_unknown_source_is_refused_by_name() -> None:
    """The message says which variable and what was seen."""
    variable = {"name": "A", "valueFrom": {"oracle": {}}}
    with pytest.raises(PodConfigError, match=r"env A: .*oracle"):
        container_env({"env": [variable]}, POD, "", "", {})


def test_a_variable_from_a_secret_is_empty() -> None:
    """No Secret, ConfigMap or resource has a value here; the container starts without it."""
    sources = ("secretKeyRef", "configMapKeyRef", "resourceFieldRef")
    variables = [{"name": source, "valueFrom": {source: {"name": "s", "key": "k"}}} for source in sources]
    assert container_env({"env": variables}, POD, "", "", {}) == dict.fromkeys(sources, "")


def test_mount_paths_become_folders(tmp_path: Path) -> None:
    """At the start of a word, as in a shell's text, or after "="; whole path elements, the longest mount first."""
    folder = PodFolder(tmp_path / "pod", tmp_path / "shared", tmp_path / "image")
    folder.create(POD, token="t", kubeconfig="k")
    mounts = [
        {"name": "scratch", "mountPath": "/ckpt"},
        {"name": "host", "mountPath": "/ckpt/data/"},
        {"name": "claim", "mountPath": "/claim", "subPath": "sub"},
    ]
    rewrite = folder.rewriter(POD, {"volumeMounts": mounts})
    assert rewrite("/ckpt/a") == str(tmp_path / "pod/volumes/scratch/a")
    assert rewrite("--dir=/ckpt/data") == f"--dir={tmp_path}/shared/host/data"
    assert rewrite("/claim") == str(tmp_path / "shared/claims/ns/c/sub")
    assert rewrite("/ckpts /my/ckpt") == "/ckpts /my/ckpt"
    assert (
        rewrite("cat '/ckpt' >/ckpt/b; true")
        == f"cat '{tmp_path}/pod/volumes/scratch' >{tmp_path}/pod/volumes/scratch/b; true"
    )
    assert (folder.credentials / "token").read_text() == "t"


def test_a_token_of_one_container_is_the_pods(tmp_path: Path) -> None:
    """As examples/train.yaml mounts it: the volume is the folder that every Pod has for its credentials."""
    token = {"name": "token", "projected": {"sources": [{"serviceAccountToken": {"path": "token"}}]}}
    pod = {"metadata": POD["metadata"], "spec": {"volumes": [token]}}
    folder = PodFolder(tmp_path / "pod", tmp_path / "shared", tmp_path / "image")
    folder.create(pod, token="t", kubeconfig="k")
    rewrite = folder.rewriter(pod, {"volumeMounts": [{"name": "token", "mountPath": "/own"}]})
    assert Path(rewrite("/own/token")).read_text() == "t"


def test_resizing_a_jobset_tells_its_workers(example: list[dict[str, Any]]) -> None:
    """The parallelism and both variables change together; a number that does not divide is refused."""
    job = with_pods(example, 24)[-1]["spec"]["replicatedJobs"][0]["template"]["spec"]
    env = {entry["name"]: entry.get("value") for entry in job["template"]["spec"]["containers"][0]["env"]}
    assert (job["parallelism"], job["completions"], env["PODS_PER_JOB"], env["WORLD_SIZE"]) == (24, 24, "24", "24")
    assert example[-1]["spec"]["replicatedJobs"][0]["template"]["spec"]["parallelism"] == 8
    with pytest.raises(ValueError, match="share evenly"):
        with_pods(example, 0)


def test_requests_add_up_over_containers_and_sidecars() -> None:
    """Plain init containers run alone and are not added."""
    small = {"resources": {"requests": {"cpu": "500m", "memory": "1Gi"}}}
    sidecar = {"restartPolicy": "Always", "resources": {"limits": {"cpu": "1"}}}
    pod = {"spec": {"containers": [small, small], "initContainers": [small, sidecar]}}
    assert requests_of(pod) == {"pods": 1.0, "cpu": 2.0, "memory": 2 * 2.0**30}
