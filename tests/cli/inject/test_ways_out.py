"""A refusal of `inject` names every way out, and each of them works."""

from __future__ import annotations

from typing import Any

import yaml

from inplace.common.kube.resources import KubeObject
from inplace.common.wire import names as wire
from tests.cli.injecting import as_yaml, example, injected, jobset_of, pod_spec_of, refused


def changed(**worker: Any) -> list[KubeObject]:
    """Return the plain example's documents with other fields in its worker; None removes one."""
    documents = list(yaml.safe_load_all(example("plain.yaml")))
    (container,) = pod_spec_of(yaml.safe_dump(documents[-1]))["containers"]
    container |= worker
    kept = {name: value for name, value in container.items() if value is not None}
    documents[-1]["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]["containers"] = [kept]
    return documents


def test_a_worker_without_a_command() -> None:
    """The ENTRYPOINT as the command, the startup probe as the barrier, or the replicatedJob out of the group."""
    documents = changed(command=None)
    words = refused(as_yaml(documents))
    assert all(way in words for way in ("ENTRYPOINT", "--barrier probe", wire.DISABLE)), words
    assert "--barrier" not in refused(as_yaml(documents), mode="supervisor")
    injected(as_yaml(changed(command=["/entry"])))
    injected(as_yaml(documents), barrier="probe")
    jobs = documents[-1]["spec"]["replicatedJobs"]
    trainers = changed()[-1]["spec"]["replicatedJobs"][0] | {"name": "trainers"}
    jobs[0]["template"]["metadata"] = {"annotations": {wire.DISABLE: ""}}
    jobs.append(trainers)
    made = jobset_of(injected(as_yaml(documents)))["spec"]["replicatedJobs"]
    assert made[0] == jobs[0]


def test_an_account_of_one_s_own() -> None:
    """Another name with the account's annotations, a Role in the file, or the option that says what it costs."""
    documents = changed()
    pod = documents[-1]["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]
    pod["serviceAccountName"] = "workload-identity"
    words = refused(as_yaml(documents))
    ways = ("inplace-agent-SUFFIX", "iam.gke.io/gcp-service-account", "bind it to a Role", "--unrestricted-account")
    assert all(way in words for way in ways), words
    injected(as_yaml(documents), unrestricted_account=True)
    subject = {"kind": "ServiceAccount", "name": "workload-identity", "namespace": "default"}
    binding = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "RoleBinding",
        "metadata": {"name": "b", "namespace": "default"},
        "subjects": [subject],
    }
    injected(as_yaml([binding, *documents]))
    pod["serviceAccountName"] = "inplace-agent-workload-identity"
    injected(as_yaml(documents))
