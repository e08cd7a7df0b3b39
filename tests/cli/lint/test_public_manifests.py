"""`lint` is content with the forms that public manifests have, and sees what only the API server would refuse later."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from inplace.cli.lint.annotations import KNOWN
from inplace.cli.lint.catalogue import RULES
from inplace.cli.lint.embedded import judge
from inplace.cli.manifests.documents import read_stream
from inplace.cli.manifests.yaml_loader import parse
from inplace.common.kube.resources import KubeObject
from inplace.common.wire import names as wire
from inplace.controller.injection.pod_roles import is_in_place
from tests.cli.command import run_here
from tests.cli.injecting import EXAMPLES, as_yaml, findings_of, injected, jobset_of, saved
from tests.cli.lint.cases import JOB, POD, job, jobset, pod, put, worker

TRAINER = {"name": "trainer", "image": "t:1", "command": ["python3", "t.py"]}


def plain(**metadata: Any) -> KubeObject:
    """Return a JobSet of two Pods."""
    template = {"spec": {"parallelism": 2, "completions": 2, "template": {"spec": {"containers": [dict(TRAINER)]}}}}
    return {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": metadata or {"name": "plain"},
        "spec": {"replicatedJobs": [{"name": "workers", "template": template}]},
    }


def unnamed_rule(document: KubeObject) -> None:
    """Give it a failure rule without a name, as upstream's webhook takes it."""
    jobset(document)["failurePolicy"] = {"maxRestarts": 3, "rules": [{"action": "FailJobSet"}]}


def null_values(document: KubeObject) -> None:
    """Leave fields empty, as templates do: the API reads null as absent."""
    document["metadata"]["labels"] = None
    pod(document).update(affinity=None, imagePullSecrets=None, volumes=None)
    worker(document).update(env=[{"name": "A", "value": None}], ports=None, volumeMounts=None)
    job(document)["template"]["metadata"] = {"annotations": None}


def generated_name(document: KubeObject) -> None:
    """Let the API server choose the name."""
    document["metadata"] = {"generateName": "sweep-"}


def claimed_volume(document: KubeObject) -> None:
    """Mount a claim of the JobSet's, which the controller adds to the Pods."""
    claim = {"metadata": {"name": "data"}, "spec": {"resources": {"requests": {"storage": "1Gi"}}}}
    jobset(document)["volumeClaimPolicies"] = [{"templates": [claim]}]
    worker(document)["volumeMounts"] = [{"name": "data", "mountPath": "/data"}]


@pytest.mark.parametrize("change", [unnamed_rule, null_values, generated_name, claimed_volume])
def test_a_form_that_the_api_takes_has_no_finding(change: Any) -> None:
    """Neither lint's own rules nor the embedded server object."""
    document = plain()
    change(document)
    assert findings_of(document) == ()
    assert judge([document]) == [[]]


def test_a_jobset_without_any_name_is_said_to_have_none() -> None:
    """What was found is nothing, and not a name of lint's own."""
    document = plain()
    document["metadata"] = {"namespace": "default"}
    (finding,) = findings_of(document)
    assert (finding.path, finding.found) == ("metadata.name", "nothing")


POLICY = {"rules": [{"action": "FailJob", "onExitCodes": {"operator": "In", "values": [3]}}]}
OF_ANOTHER = {"containerName": "other", "operator": "In", "values": [3]}
REFUSED: list[tuple[Any, str]] = [
    (put(pod, restartPolicy="Always"), f"{POD}.restartPolicy"),
    (put(job, podFailurePolicy=POLICY), f"{POD}.restartPolicy"),  # it is OnFailure where nothing is said
    (
        lambda d: (
            put(pod, restartPolicy="Never")(d),
            put(job, podFailurePolicy={"rules": [{"action": "FailJob", "onExitCodes": OF_ANOTHER}]})(d),
        ),
        f"{JOB}.podFailurePolicy.rules[0].onExitCodes.containerName",
    ),
    (
        put(worker, volumeMounts=[{"name": "gone", "mountPath": "/data"}]),
        f'{POD}.containers[name="trainer"].volumeMounts[0].name',
    ),
]


@pytest.mark.parametrize(("change", "path"), REFUSED, ids=range(len(REFUSED)))
def test_what_the_api_would_refuse_of_the_jobs_is_an_error_now(change: Any, path: str) -> None:
    """On a cluster the JobSet is taken, and only its Events say that its Jobs are not."""
    document = plain()
    change(document)
    ((finding,),) = judge([document])
    assert (finding.rule, finding.path) == ("admission", path)


def test_the_command_asks_the_server_about_the_jobs(tmp_path: Path) -> None:
    """It ends with 1, and the finding stands beside the sentences."""
    document = plain()
    put(pod, restartPolicy="Always")(document)
    result = run_here("lint", "-f", saved(tmp_path, as_yaml([document])), "-o", "json")
    assert result.returncode == 1
    assert [one["path"] for one in json.loads(result.stdout)["findings"]] == [f"{POD}.restartPolicy"]


@pytest.mark.parametrize("name", sorted(path.name for path in EXAMPLES.glob("*.yaml")))
def test_the_server_takes_every_example_s_jobs(name: str) -> None:
    """What the controller makes of the examples is right."""
    assert [found for found in judge(list(read_stream(str(EXAMPLES / name)).jobsets())) if found] == []


def test_a_plain_jobset_is_not_called_clean(tmp_path: Path) -> None:
    """Nothing restarts in place there, and the command that changes that is named."""
    first, *others = run_here("lint", "-f", saved(tmp_path, as_yaml([plain()]))).stdout.splitlines()
    assert first == "JobSet plain: no mistake found, and nothing restarts in place"
    assert "policy Nothing restarts in place here (restartStrategy is not set): `inplace inject -f FILE`" in others[0]
    assert is_in_place(jobset_of(injected(as_yaml([plain()]))))


@pytest.mark.parametrize("barrier", ["guard", "probe"])
def test_a_container_beside_the_named_worker_is_a_helper(barrier: str) -> None:
    """After --worker, lint asks neither a guard nor restart rules of the others."""
    document = plain()
    helper = {"name": "daemon", "image": "d:1", "command": ["daemon"]}
    pod(document)["containers"].insert(0, helper)
    made = injected(as_yaml([document]), workers=("trainer",), barrier=barrier, agent_image="a:1")
    rules = [finding.rule for finding in findings_of(*parse(made))]
    assert rules == (["worker-start"] if barrier == "probe" else [])


def test_a_worker_that_lost_its_guard_is_no_helper() -> None:
    """Its restart rules say that it is a worker."""
    document = plain()
    pod(document)["containers"].append(dict(TRAINER) | {"name": "second"})
    made = injected(as_yaml([document]), workers=("trainer", "second"), agent_image="a:1")
    documents = list(parse(made))
    pod(documents[-1])["containers"][1]["command"] = ["python3", "t.py"]
    (finding,) = findings_of(*documents)
    assert (finding.rule, finding.path) == ("guard-missing", f'{POD}.containers[name="second"].command')


SPELLINGS = [
    ("jobset.sigs.k8s.io/exclusive-topology", wire.EXCLUSIVE_TOPOLOGY),
    ("alpha.jobset.sig.k8s.io/exclusive-topology", wire.EXCLUSIVE_TOPOLOGY),
    ("jobset.sigs.k8s.io/disable-inplace-restart", wire.DISABLE),
    ("inplace.dev/stall_after", wire.STALL_AFTER),
    ("inplace.dev/barrier-deadline-secs", wire.BARRIER_DEADLINE),
    ("inplace.dev/qqqq", "a name of docs/manifests.md"),
]


@pytest.mark.parametrize(("name", "meant"), SPELLINGS)
@pytest.mark.parametrize("place", ["metadata", "job", "pod"])
def test_a_misspelt_annotation_is_named_with_the_right_one(name: str, meant: str, place: str) -> None:
    """Wherever it stands."""
    document = plain()
    template = jobset(document)["replicatedJobs"][0]["template"]
    parts = {"metadata": document, "job": template, "pod": template["spec"]["template"]}
    parts[place].setdefault("metadata", {})["annotations"] = {name: "1"}
    (finding,) = findings_of(document)
    assert (finding.rule, finding.needed) == ("annotation-name", meant)
    assert name in finding.path


def test_known_and_foreign_annotations_are_no_mistakes() -> None:
    """Our names, upstream's, and those of other projects."""
    names = (wire.SAVE_WITHIN, wire.EXCLUSIVE_TOPOLOGY, "kueue.x-k8s.io/queue-name", "gke-gcsfuse/volumes", "a")
    document = plain(name="plain", annotations=dict.fromkeys(names, "60"))
    assert findings_of(document) == ()
    assert {wire.EXCLUSIVE_TOPOLOGY, wire.NODE_SELECTOR_STRATEGY, wire.RESTART_DEPTH, wire.FENCE_AFTER} <= KNOWN


def test_a_template_that_nobody_filled_in_is_only_that() -> None:
    """Each place is named once, and no cure talks of other names."""
    document = plain(name="${WORKLOAD}")
    worker(document)["image"] = "${IMAGE}"
    job(document).update(parallelism="$PODS", completions="$PODS")
    found = findings_of(document)
    assert {finding.rule for finding in found} == {"unexpanded-variable"}
    assert [finding.found.partition(" in ")[0] for finding in found] == ["${WORKLOAD}", "$PODS", "$PODS", "${IMAGE}"]
    assert RULES["unexpanded-variable"].severity == "error"
    assert "envsubst" in found[0].fix
    worker(document)["image"] = "{{ .Values.image }}"
    assert any("helm template" in finding.fix for finding in findings_of(document))
