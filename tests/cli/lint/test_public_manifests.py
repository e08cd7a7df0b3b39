"""`lint` is content with the forms that public manifests have, and sees what only the API server would refuse later."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from inplace.cli.lint.admission import judge
from inplace.cli.lint.catalogue import RULES
from inplace.cli.lint.jobset import KNOWN
from inplace.cli.manifests.documents import read_stream
from inplace.cli.manifests.yaml_loader import parse
from inplace.common.injection.pod_roles import is_in_place
from inplace.common.kube.resources import KubeObject
from inplace.common.wire import names as wire
from tests.cli.command import run_here
from tests.cli.injecting import EXAMPLES, as_yaml, findings_of, injected, jobset_of, saved
from tests.cli.lint.cases import POD, job, jobset, pod, put, worker

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
    assert (finding.rule, finding.path) == ("template-broken", f'{POD}.containers[name="second"].command')


SPELLINGS = [
    ("jobset.sigs.k8s.io/exclusive-topology", wire.EXCLUSIVE_TOPOLOGY),
    ("alpha.jobset.sig.k8s.io/exclusive-topology", wire.EXCLUSIVE_TOPOLOGY),
    ("jobset.sigs.k8s.io/disable-inplace-restart", wire.DISABLE),
    ("inplace.dev/stall_after", wire.STALL),
    ("inplace.dev/bariers", wire.BARRIER),
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
    assert (finding.rule, finding.needed) == ("no-effect", meant)
    assert name in finding.path


def test_known_and_foreign_annotations_are_no_mistakes() -> None:
    """Our names, upstream's, and those of other projects."""
    names = (wire.GROUP_SIZE, wire.EXCLUSIVE_TOPOLOGY, "kueue.x-k8s.io/queue-name", "gke-gcsfuse/volumes", "a")
    document = plain(name="plain", annotations=dict.fromkeys(names, "60"))
    assert findings_of(document) == ()
    moved = plain(name="plain", annotations={wire.SAVE_WITHIN: "60"})
    assert [one.needed for one in findings_of(moved)] == ["save-within in inplace.dev/restart"]
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
